// SPDX-License-Identifier: GPL-2.0-only
// The groups of cases, in the order they run.
#include "torture.h"

void add_all_cases(void)
{
	cases_interface();
	cases_account();
	cases_chain();
	cases_proc();
	cases_matrix();
	cases_gup();
	cases_direct();
	cases_uffd();
	cases_thread();
	cases_life();
	cases_core();
	cases_heap();
	cases_swap();
	cases_machine();
	cases_fault();
	cases_fuzz();
}
