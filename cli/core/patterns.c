#include "cli/core/patterns.h"

#include "cli/core/cli.h"

#include <stdlib.h>

/* The classifier is asked, so that globs mean one thing: a name matches if it would be frozen. */
size_t patterns_match(const char *pattern, const char *const *names, size_t count, char *hit)
{
    static const char *const all[] = {"*"};
    enum { REST, FOUND };
    muon_classifier classifier;
    muon_classifier_init(&classifier, sizeof classifier);
    classifier.frozen_patterns = &pattern;
    classifier.adamw_patterns = all;
    classifier.nfrozen_patterns = classifier.nadamw_patterns = 1;
    classifier.frozen_group = FOUND;
    classifier.adamw_group = REST;

    muon_param *trial = cli_alloc(count, sizeof *trial);
    for (size_t i = 0; i < count; i++) {
        muon_param_init(&trial[i], sizeof trial[i]);
        trial[i].name = names[i];
    }
    size_t found = 0;
    int any = muon_classify(trial, count, &classifier) == MUON_OK; /* no match is its error */
    for (size_t i = 0; any && i < count; i++) {
        if (trial[i].group != FOUND) continue;
        hit[i] = 1;
        found++;
    }
    free(trial);
    return found;
}
