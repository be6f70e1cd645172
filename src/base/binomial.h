/* binomial.h - the shape of the tree over which ranks agree (comm/tree.h), for whoever counts connections. */
#ifndef BASE_BINOMIAL_H
#define BASE_BINOMIAL_H

static inline int muon__lowest_bit(int rank)
{
    return rank & -rank;
}

/* Rank 0 has none, and is its own here. */
static inline int muon__binomial_parent(int rank)
{
    return rank - muon__lowest_bit(rank);
}

#endif
