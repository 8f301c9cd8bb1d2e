// SPDX-License-Identifier: GPL-2.0-only
// As much of io_uring as the tests need: one request at a time, registered buffers.
#include "torture.h"
#include <linux/io_uring.h>

int uring_open(struct uring *u)
{
	struct io_uring_params p = { 0 };
	int fd = (int)syscall(SYS_io_uring_setup, 4, &p);

	if (fd < 0)
		return -errno;
	size_t sq = p.sq_off.array + p.sq_entries * 4,
	       cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);

	u->fd = fd;
	u->sq = mmap(NULL, sq, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
	u->cq = mmap(NULL, cq, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_CQ_RING);
	u->sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
		       MAP_SHARED, fd, IORING_OFF_SQES);
	u->params = malloc(sizeof(p));
	if (u->sq == MAP_FAILED || u->cq == MAP_FAILED || u->sqes == MAP_FAILED || !u->params)
		return -ENOMEM;
	memcpy(u->params, &p, sizeof(p));
	return 0;
}

int uring_register(struct uring *u, void *buffer, size_t size)
{
	struct iovec v = { buffer, size };

	return syscall(SYS_io_uring_register, u->fd, IORING_REGISTER_BUFFERS, &v, 1) ? -errno : 0;
}

/* Reads or writes the registered buffer; the result of the request. */
long uring_fixed(struct uring *u, bool write, int fd, void *buffer, size_t size, uint64_t offset)
{
	struct io_uring_params *p = u->params;
	struct io_uring_sqe *e = u->sqes;
	_Atomic uint32_t *sq_tail = (_Atomic uint32_t *)(u->sq + p->sq_off.tail);
	_Atomic uint32_t *cq_head = (_Atomic uint32_t *)(u->cq + p->cq_off.head);
	uint32_t tail = atomic_load(sq_tail), mask = *(uint32_t *)(u->sq + p->sq_off.ring_mask);

	e += tail & mask;
	memset(e, 0, sizeof(*e));
	e->opcode = write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
	e->fd = fd;
	e->addr = (uintptr_t)buffer;
	e->len = (uint32_t)size;
	e->off = offset;
	((uint32_t *)(u->sq + p->sq_off.array))[tail & mask] = tail & mask;
	atomic_store(sq_tail, tail + 1);
	if (syscall(SYS_io_uring_enter, u->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		return -errno;
	uint32_t head = atomic_load(cq_head), cq_mask = *(uint32_t *)(u->cq + p->cq_off.ring_mask);
	struct io_uring_cqe *c = (struct io_uring_cqe *)(u->cq + p->cq_off.cqes) + (head & cq_mask);
	long r = c->res;

	atomic_store(cq_head, head + 1);
	return r;
}
