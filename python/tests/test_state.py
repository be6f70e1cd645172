"""State: state dicts, copies, and parameters that change."""

import copy
import io
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

import libmuon
from models import make_model, make_optimizer, same, same_state, train, weights


def through_a_file(state_dict):
    file = io.BytesIO()
    torch.save(state_dict, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# ---- state_dict and load_state_dict


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("momentum_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("stepped", [False, True])
def test_a_run_continues_from_its_state_dict_with_the_same_bits(dtype, momentum_dtype, stepped):
    first = make_model(dtype)
    ours = make_optimizer(first, momentum_dtype=momentum_dtype)
    train(first, ours, 3)
    saved = through_a_file(ours.state_dict())
    second = copy.deepcopy(first)
    theirs = make_optimizer(second, momentum_dtype=momentum_dtype)
    if stepped:
        train(second, theirs, 1, seed=9)
        second.load_state_dict(first.state_dict())
    theirs.load_state_dict(saved)
    assert same_state(ours.state_dict(), theirs.state_dict())
    train(first, ours, 2, seed=6)
    train(second, theirs, 2, seed=6)
    assert same(weights(first), weights(second))
    assert same_state(ours.state_dict(), theirs.state_dict())


def test_bf16_parameters_keep_f32_state_of_every_kind():
    model = make_model(torch.bfloat16)
    optimizer = make_optimizer(model)
    optimizer.param_groups[1]["momentum_dtype"] = "bf16"  # AdamW has no use for it
    train(model, optimizer, 2)
    optimizer.load_state_dict(optimizer.state_dict())
    for state in optimizer.state.values():
        for key, value in state.items():
            assert value.dtype == (torch.int64 if key == "step" else torch.float32), key
    assert any((m.bfloat16() != m).any() for s in optimizer.state.values() for m in s.values())


@pytest.mark.parametrize(
    "step", [3, 3.0, torch.tensor(3.0), torch.tensor([3]), torch.tensor(3, dtype=torch.bfloat16)]
)
def test_step_becomes_an_int64_whatever_it_was(step):
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    for state in saved["state"].values():
        state["step"] = step
    optimizer.load_state_dict(saved)
    for state in optimizer.state.values():
        assert state["step"].dtype == torch.int64
        assert state["step"].shape == ()
        assert state["step"].item() == 3


def test_loading_copies_and_later_steps_do_not_change_what_was_loaded():
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    kept = copy.deepcopy(saved)
    optimizer.load_state_dict(saved)
    train(model, optimizer, 2)
    assert same_state(saved, kept)


def test_settings_of_groups_are_restored_with_what_a_scheduler_added():
    model = make_model()
    optimizer = make_optimizer(model, weight_decay=0.3, ns_coefficients=[(3.0, -4.0, 2.0)])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    train(model, optimizer)
    schedule.step()
    other = make_optimizer(make_model())
    other.load_state_dict(through_a_file(optimizer.state_dict()))
    for a, b in zip(optimizer.param_groups, other.param_groups, strict=True):
        assert {k: v for k, v in a.items() if k != "params"} == {
            k: v for k, v in b.items() if k != "params"
        }
    assert other.param_groups[0]["lr"] == 0.01
    assert other.param_groups[0]["initial_lr"] == 0.02


def test_parameters_are_found_by_name_in_another_order():
    model = torch.nn.ModuleDict({key: torch.nn.Linear(8, 8, bias=False) for key in "abc"})
    named = list(model.named_parameters())
    first, second = libmuon.Muon(named), libmuon.Muon(named[::-1])
    train(model, first, 2)
    second.load_state_dict(first.state_dict())
    for _, parameter in named:
        assert same_state(first.state[parameter], second.state[parameter])


@pytest.mark.parametrize("flat", [False, True])
def test_torch_checkpoints_find_parameters_in_another_order(flat):
    model = torch.nn.ModuleDict({key: torch.nn.Linear(8, 8, bias=False) for key in "abc"})
    named = list(model.named_parameters())
    first, second = libmuon.Muon(named), libmuon.Muon(named[::-1])
    train(model, first, 2)
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    saved = get_optimizer_state_dict(model, first, options=options)
    model.zero_grad()  # otherwise torch does not create the state that a flat one is read by
    set_optimizer_state_dict(model, second, saved, options=options)
    for _, parameter in named:
        assert same_state(first.state[parameter], second.state[parameter])
    assert second.param_groups[0]["param_names"] == ["c.weight", "b.weight", "a.weight"]


def test_a_state_dict_from_before_the_first_step_makes_the_state_new():
    first, second = make_model(), make_model()
    ours, theirs = make_optimizer(first), make_optimizer(second)
    empty = ours.state_dict()
    assert not empty["state"]
    train(second, theirs, 2)
    theirs.load_state_dict(empty)
    second.load_state_dict(first.state_dict())
    train(first, ours, 2, seed=8)
    train(second, theirs, 2, seed=8)
    assert same(weights(first), weights(second))


def test_all_hooks_run_and_may_change_what_is_loaded():
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer)
    calls = []

    def replaced(which, state_dict):
        calls.append("before load")
        changed = copy.deepcopy(state_dict)
        changed["param_groups"][0]["lr"] = 0.5
        return changed

    optimizer.register_state_dict_pre_hook(lambda o: calls.append("before"))
    optimizer.register_state_dict_post_hook(lambda o, d: calls.append("after"))
    optimizer.register_load_state_dict_pre_hook(replaced)
    optimizer.register_load_state_dict_post_hook(
        lambda o: calls.append(f"loaded {o.param_groups[0]['lr']} {len(o.state)}")
    )
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["before", "after", "before load", "loaded 0.5 5"]


def remove(key):
    return lambda saved: saved["state"][0].pop(key)


def change(key, value):
    return lambda saved: saved["state"][0].update({key: value})


MISMATCHES = [
    (remove("momentum_buffer"), "param 'linear.weight' is trained by muon.*no 'momentum_buffer'"),
    (remove("step"), "param 'linear.weight'.*no 'step', only 'momentum_buffer'"),
    (change("momentum_buffer", torch.zeros(24, 41)), r"'linear.weight'.*\(24, 41\).*\(41, 24\)"),
    (change("momentum_buffer", torch.zeros(41, 24, dtype=torch.int32)), "'linear.weight'.*int32"),
    (change("momentum_buffer", 3.0), "'linear.weight'.*float, not a tensor"),
    (change("step", 1.5), "'linear.weight'.*step is 1.5"),
    (change("step", torch.zeros(2)), r"'linear.weight'.*step has shape \(2,\)"),
    (lambda saved: saved["param_groups"].pop(), "has 1 groups, the optimizer 2"),
    (lambda saved: saved["param_groups"][1]["params"].pop(), "group 1: 3 parameters.*4 in"),
    (lambda saved: saved["param_groups"][0].pop("rule"), "libmuon.convert_state"),
    (lambda saved: saved["param_groups"][0].update(rule="adamw"), "group 0 is adamw in.*muon in"),
    (lambda saved: saved["param_groups"][0].update(momentum=3.0), "group 0.*momentum"),
    (lambda saved: saved.pop("state"), "no 'state'"),
    (lambda saved: saved["state"].update({7: {}}), "parameter 7"),
]


@pytest.mark.parametrize(("damage", "text"), MISMATCHES)
def test_what_does_not_fit_is_named_and_changes_nothing(damage, text):
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer, 2)
    before = copy.deepcopy(optimizer.state_dict())
    other = make_model()
    third = make_optimizer(other)
    train(other, third, 3, seed=12)
    saved = copy.deepcopy(third.state_dict())
    damage(saved)
    with pytest.raises(libmuon.ArgumentError, match=text):
        optimizer.load_state_dict(saved)
    assert same_state(optimizer.state_dict(), before)


# ---- Eager state


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eager_initialisation_changes_nothing_and_leaves_a_new_state(dtype):
    first, second = make_model(dtype), make_model(dtype)
    ours, theirs = (make_optimizer(model, weight_decay=0.5) for model in (first, second))
    before = weights(first)
    state_dict = get_optimizer_state_dict(first, ours)
    assert same(weights(first), before)
    assert len(state_dict["state"]) == len(before)
    for state in ours.state.values():
        assert all(not value.any() for value in state.values())
    train(first, ours, 2)
    train(second, theirs, 2)
    assert same(weights(first), weights(second))
    assert same_state(ours.state_dict(), theirs.state_dict())


def test_a_step_without_gradients_or_lr_counts_later_on():
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    for parameter in model.parameters():
        parameter.grad.zero_()
    optimizer.step()
    assert {state["step"].item() for state in optimizer.state.values()} == {2}


# ---- Copies


def pickled(both):
    file = io.BytesIO()
    torch.save(both, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
@pytest.mark.parametrize("steps", [0, 2])
def test_a_copy_goes_on_like_the_original(duplicate, steps):
    model = make_model(torch.bfloat16)
    optimizer = make_optimizer(model, clip_norm=0.7, matrices={"linear.weight": "rows 16, 25"})
    train(model, optimizer, steps)
    other_model, other = duplicate((model, optimizer))
    assert other.param_groups[0]["params"][0] is other_model["linear"].weight
    train(model, optimizer, 2, seed=3)
    train(other_model, other, 2, seed=3)
    assert same(weights(model), weights(other_model))
    assert same_state(optimizer.state_dict(), other.state_dict())
    assert other.last.clip_coef == optimizer.last.clip_coef < 1


def test_a_copy_works_with_the_same_ranks():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = make_model()
        optimizer = make_optimizer(model, process_group=dist.new_group([0]))
        train(model, optimizer)
        other_model, other = copy.deepcopy((model, optimizer))
        assert other._options["process_group"] is optimizer._options["process_group"]
        train(model, optimizer, seed=3)
        train(other_model, other, seed=3)
        assert same(weights(model), weights(other_model))
        optimizer.close()
        other.close()
    finally:
        dist.destroy_process_group()


# ---- Parameters that change


def swap(optimizer, old, new):
    for group in optimizer.param_groups:
        group["params"] = [new if tensor is old else tensor for tensor in group["params"]]


def test_a_swapped_parameter_begins_anew_and_the_stale_state_goes():
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer, 2)
    old = model["linear"].weight
    model["linear"].weight = torch.nn.Parameter(old.detach().clone())
    swap(optimizer, old, model["linear"].weight)
    with pytest.warns(UserWarning, match="1 tensors with state.*'linear.weight' begins without"):
        train(model, optimizer)
    assert old not in optimizer.state
    assert optimizer.state[model["linear"].weight]["step"].item() == 1
    assert optimizer.state[model["linear"].bias]["step"].item() == 3


def test_parameters_swapped_before_the_first_step_are_trained_without_a_warning():
    model, other = make_model(), make_model()
    optimizer, twin = make_optimizer(model), make_optimizer(other)
    for old in list(model.parameters()):
        for module in model.values():
            for name, tensor in list(module.named_parameters(recurse=False)):
                if tensor is old:
                    new = torch.nn.Parameter(old.detach().clone())
                    setattr(module, name, new)
                    swap(optimizer, old, new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer, 2)
    train(other, twin, 2)
    assert same(weights(model), weights(other))


def test_state_can_be_carried_over_to_swapped_parameters():
    model, other = make_model(), make_model()
    optimizer, twin = make_optimizer(model), make_optimizer(other)
    train(model, optimizer, 2)
    train(other, twin, 2)
    saved = optimizer.state_dict()
    old = model["linear"].weight
    model["linear"].weight = torch.nn.Parameter(old.detach().clone())
    swap(optimizer, old, model["linear"].weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.load_state_dict(saved)
        train(model, optimizer, 2, seed=4)
    train(other, twin, 2, seed=4)
    assert same(weights(model), weights(other))


def test_a_group_added_after_steps_begins_anew_and_the_others_keep_their_state():
    first, second = make_model(), torch.nn.Linear(12, 16)
    optimizer = make_optimizer(first)
    train(first, optimizer, 2)
    optimizer.add_param_group({"params": list(second.named_parameters(prefix="new"))})
    both = torch.nn.ModuleList([first, second])
    train(both, optimizer)
    assert optimizer.state[first["linear"].weight]["step"].item() == 3
    assert optimizer.state[second.weight]["step"].item() == 1


def test_a_frozen_parameter_keeps_its_state_until_it_is_trained_again():
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer, 2)
    kept = copy.deepcopy(optimizer.state[model["linear"].weight])
    model["linear"].weight.requires_grad_(False)
    train(model, optimizer)
    optimizer.load_state_dict(through_a_file(optimizer.state_dict()))
    assert same_state(optimizer.state[model["linear"].weight], kept)
    model["linear"].weight.requires_grad_(True)
    train(model, optimizer)
    assert optimizer.state[model["linear"].weight]["step"].item() == 3


def test_a_model_that_becomes_bf16_is_trained_on_with_the_same_state():
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer, 2)
    momentum = optimizer.state[model["linear"].weight]["momentum_buffer"]
    model.bfloat16()
    train(model, optimizer)
    assert model["linear"].weight.dtype == torch.bfloat16
    assert optimizer.state[model["linear"].weight]["momentum_buffer"] is momentum
    assert optimizer.state[model["linear"].weight]["step"].item() == 3


def test_momentum_changes_its_dtype_when_the_setting_does():
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer, 2)
    momentum = optimizer.state[model["linear"].weight]["momentum_buffer"].clone()
    optimizer.param_groups[0]["momentum_dtype"] = "bf16"
    optimizer.plan  # noqa: B018
    assert torch.equal(
        optimizer.state[model["linear"].weight]["momentum_buffer"], momentum.bfloat16()
    )
    train(model, optimizer)


REPLACEMENTS = [
    ("momentum_buffer", lambda m: m.bfloat16().double(), None),
    ("momentum_buffer", lambda m: m.T.contiguous().T, None),
    ("momentum_buffer", lambda m: m[:5], r"\(5, 24\)"),
    ("step", lambda s: s.float(), None),
    ("step", lambda s: s - 7, "-5"),
]


@pytest.mark.parametrize(("key", "replace", "text"), REPLACEMENTS)
def test_state_that_the_caller_replaces_is_checked(key, replace, text):
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer, 2)
    state = optimizer.state[model["linear"].weight]
    state[key] = replace(state[key])
    if text:
        with pytest.raises(libmuon.ArgumentError, match=f"'linear.weight'.*{text}"):
            train(model, optimizer)
        return
    train(model, optimizer)
    assert state["momentum_buffer"].dtype == torch.float32
    assert state["step"].dtype == torch.int64
    assert state["step"].item() == 3


def test_state_that_two_parameters_share_is_refused_every_time():
    a, b = (torch.nn.Parameter(torch.ones(4, 4)) for _ in range(2))
    optimizer = libmuon.Muon([a, b])
    a.grad, b.grad = torch.eye(4), torch.eye(4)
    optimizer.step()
    own = optimizer.state[a]["momentum_buffer"]
    optimizer.state[a]["momentum_buffer"] = optimizer.state[b]["momentum_buffer"]
    for _ in range(2):
        with pytest.raises(libmuon.ArgumentError):
            optimizer.step()
    optimizer.state[a]["momentum_buffer"] = own
    optimizer.step()
    assert torch.equal(a, b)


def test_whoever_looks_at_the_state_of_a_frozen_parameter_changes_nothing():
    a = torch.nn.Parameter(torch.ones(4, 4))
    b = torch.nn.Parameter(torch.ones(4, 4), requires_grad=False)
    optimizer = libmuon.Muon([a, b])
    a.grad = torch.eye(4)
    optimizer.step()
    engine = optimizer._engine
    assert optimizer.state[b] == {}
    optimizer.step()
    assert optimizer._engine is engine
