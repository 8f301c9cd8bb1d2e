/* Advice to the pager of `odfork page run`.
 *
 * Nothing has to be linked: the function is found in the preloaded agent, and where there is none
 * the call does nothing.
 */
#ifndef ODFORK_PAGE_H
#define ODFORK_PAGE_H

#ifdef __cplusplus
extern "C" {
#endif

/* No phase of its own: reference bits are simulated. */
#define ODFORK_PAGE_NORMAL 0
/* A garbage collection, or another walk over everything: what is touched now says nothing about
 * what will be. No reference bits meanwhile: pages leave in nearly random order and cost no
 * reclaims. */
#define ODFORK_PAGE_ANOMALOUS 1

/* Defined by the agent, libodfork_pager.so. Returns 0, or -1 when nothing of this program is paged
 * or the advice is not known. */
int odfork_page_advise(int advice) __attribute__((weak));

/* As odfork_page_advise, in programs that run without the pager, too: -1 there. */
static inline int odfork_page_advise_if_paged(int advice)
{
    return odfork_page_advise ? odfork_page_advise(advice) : -1;
}

#ifdef __cplusplus
}
#endif
#endif
