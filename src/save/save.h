/* save.h - for destroying an optimizer: a save that is still running is discarded first. */
#ifndef SAVE_SAVE_H
#define SAVE_SAVE_H

#include "muon/checkpoint.h"

void muon__save_drop(muon_opt *opt); /* not collective; NULL is fine */

#endif
