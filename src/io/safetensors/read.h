/* read.h - the internals of an open file, for code that reads several of them as one. */
#ifndef IO_SAFETENSORS_READ_H
#define IO_SAFETENSORS_READ_H

#include "io/safetensors/header.h"

/* Exactly these bytes of a file. MUON_E_IO says where it failed; the caller adds the file. */
muon_status muon__st_read_at(int fd, void *data, size_t bytes, int64_t offset);

const st_header *muon__st_header(const muon_st *file);
int64_t muon__st_data(const muon_st *file); /* where the data begin in the file */
int muon__st_fd(const muon_st *file);

#endif
