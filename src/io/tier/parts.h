/* parts.h - what a tier is made of: a schedule known in advance, a file that nobody else sees, and
 * threads that move blocks between it and memory. */
#ifndef IO_TIER_PARTS_H
#define IO_TIER_PARTS_H

#include "io/tier/tier.h"

#include <pthread.h>

/* ---- The schedule (visits.c) */

/* A visit: a block is read before stage `first` and written after stage `last`. */
typedef struct tier_visit {
    uint32_t block, first, last;
} tier_visit;

typedef struct tier_schedule {
    size_t nblocks, nstages;
    size_t frames;  /* blocks in memory at most */
    size_t nvisits; /* of blocks that come and go */
    size_t npinned;
    tier_visit *visits;  /* in the order they are read: by first stage, then by block */
    size_t *begins;      /* [nstages + 1]: stage s begins visits[begins[s]] .. [begins[s + 1]] */
    uint32_t *ended;     /* the blocks of visits by their last stage, then by block */
    size_t *ends;        /* [nstages + 1]: stage s ends ended[ends[s]] .. [ends[s + 1]] */
    unsigned char *pins; /* [nblocks]: it stays in memory for good */
} tier_schedule;

/* MUON_E_BUDGET, with the least that would do. */
muon_status muon__tier_schedule(tier_schedule *out, const tier_stages *stages, size_t nblocks,
                                size_t block_bytes, int64_t budget);
void muon__tier_schedule_free(tier_schedule *plan);

/* ---- The file (file.c) */

typedef struct tier_file {
    int fd;
    int direct; /* O_DIRECT: offsets, sizes and addresses are multiples of the block */
    char *dir;  /* for messages */
} tier_file;

/* `bytes` of zeros that the file system has promised to store. `block` is memory of block_bytes,
 * zeroed and aligned to it, to try O_DIRECT with. */
muon_status muon__tier_file_open(tier_file *f, const char *dir, size_t bytes, int cached,
                                 char *block, size_t block_bytes);
void muon__tier_file_close(tier_file *f); /* one that was not opened (fd -1) is fine */
/* All of it, or an error that says what and where. */
muon_status muon__tier_file_read(const tier_file *f, void *data, size_t offset, size_t bytes);
muon_status muon__tier_file_write(const tier_file *f, const void *data, size_t offset,
                                  size_t bytes);

/* ---- The tier */

typedef enum block_state {
    BLOCK_ABSENT, /* in the file alone */
    BLOCK_READING,
    BLOCK_CLEAN,   /* in memory, as in the file */
    BLOCK_CHANGED, /* in memory: from the stage that begins its visit */
    BLOCK_QUEUED,  /* to be written and dropped */
    BLOCK_WRITING,
    BLOCK_PINNED /* in memory for good */
} block_state;

struct tier {
    region memory;
    size_t block_bytes;
    tier_schedule plan;
    tier_file file;
    char *bounce; /* for what O_DIRECT cannot do where the bytes are */
    pthread_t *threads;
    int started;

    /* What follows is under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t work;  /* there may be a job */
    pthread_cond_t done;  /* one is done */
    unsigned char *state; /* [nblocks] of block_state */
    size_t *missing;      /* [nstages]: visits that begin with it and have not been read */
    size_t next;          /* the visit to be read next, in this cycle or the one after */
    uint32_t *queue;      /* [nblocks], a ring: blocks to be written */
    size_t queue_first, queue_length;
    size_t expected; /* the stage to be entered next; nstages inside of one */
    int running;     /* jobs under way */
    int paused;      /* none begins */
    int waiting;     /* a stage cannot begin yet */
    int quit;
    size_t resident, resident_most; /* blocks: from the beginning of a read to the end of a drop */
    int64_t bytes_read, bytes_written;
    muon_status status; /* the first failure, and its message */
    char message[MUON__MESSAGE_MAX];
};

/* (traffic.c) The threads begin paused. */
muon_status muon__tier_start(tier *t, int threads);
void muon__tier_stop(tier *t);
/* Takes the lock, and nothing is under way as long as it is held; fails without it. */
muon_status muon__tier_settle(tier *t);
/* Releases it, and the threads go on. */
void muon__tier_resume(tier *t);

#endif
