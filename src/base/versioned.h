/* versioned.h - public structs shared by a program and a library of different versions.
 *
 * A struct grows only at its end, and starts with struct_size as the program compiled it. So what
 * both sides know is a prefix: fields a program does not know keep their defaults, and fields this
 * library does not know must be zero, which every later version takes as "not used". A new field
 * must not use what was padding at the end, or struct_size would not reveal it. */
#ifndef BASE_VERSIONED_H
#define BASE_VERSIONED_H

#include "base/status.h"

/* A struct_size this far above ours is no newer version but memory nobody initialised. */
#define MUON__STRUCT_GROWTH 4096

/* For the public init functions: the defaults, as far as the caller's struct reaches; zeros where
 * it reaches further; struct_size = caller_size. */
void muon__struct_init(void *dst, size_t known, const void *defaults, size_t caller_size);

/* Reads a caller's struct. dst has `known` bytes and holds the defaults; what the caller's struct
 * covers is replaced, and dst's struct_size becomes `known`. `minimum` is the size the struct had
 * in 0.1.0. `what` is the type's name, "muon_param". MUON_E_VERSION if struct_size makes no sense
 * or a field is set that this library does not know; then dst is as before. */
muon_status muon__struct_load(void *dst, size_t known, size_t minimum, const void *src,
                              const char *what);

/* The same for element `index` of an array whose elements all carry the struct_size of the
 * first. */
muon_status muon__struct_load_at(void *dst, size_t known, size_t minimum, const void *base,
                                 size_t index, const char *what);

/* Where element `index` of a caller's array is, once muon__struct_load_at has accepted it. */
const void *muon__struct_at(const void *base, size_t index);

/* Writes a struct to a caller who passed its sizeof: as much as the caller knows, zeros where the
 * caller knows more. A struct that starts with struct_size must carry the caller's in src. */
muon_status muon__struct_store(void *dst, size_t caller_size, const void *src, size_t known,
                               const char *what);

#endif
