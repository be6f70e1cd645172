// consumer.cpp - a user's C++11 program: one step of an optimizer, by the installed library.
#include <muon/muon.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

int main()
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.lr = 0.5;
    group.weight_decay = 0;
    muon_param param;
    muon_param_init(&param, sizeof param);
    param.name = "w";
    param.ndim = 2;
    param.shape[0] = 4;
    param.shape[1] = 6;
    param.group = 0;
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = &group;
    config.ngroups = 1;
    config.threads = 1;

    muon_opt *raw = nullptr;
    if (muon_create(&raw, &config, &param, 1) != MUON_OK) {
        std::fprintf(stderr, "%s\n", muon_last_error());
        return 1;
    }
    std::unique_ptr<muon_opt, void (*)(muon_opt *)> opt(raw, muon_destroy);

    std::vector<float> weight(24, 1.0f), gradient(24);
    for (std::size_t i = 0; i < gradient.size(); i++)
        gradient[i] = static_cast<float>(std::sin(1.0 + static_cast<double>(i * i)));
    muon_buffers buffers = {weight.data(), gradient.data(), nullptr};
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = &buffers;
    muon_result result;
    muon_result_init(&result, sizeof result);
    if (muon_step(opt.get(), &args, &result) != MUON_OK || !result.applied) {
        std::fprintf(stderr, "%s\n", muon_last_error());
        return 1;
    }

    double moved = 0;
    for (float w : weight)
        moved += std::fabs(static_cast<double>(w) - 1.0);
    if (!(moved > 0.1) || result.matrices != 1) {
        std::fprintf(stderr, "moved by %g, %lld matrices\n", moved,
                     static_cast<long long>(result.matrices));
        return 1;
    }
    std::printf("libmuon %s from C++\n", muon_version());
    return 0;
}
