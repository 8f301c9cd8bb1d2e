/* What a process writes, nobody else sees: parent and four children write everything at once, and
 * folds happen in the parent and in the children while the others are alive. */
// odtest: expect=fold timeout=90 mem=500
#include "odtest.h"

#define SIZE (16 * OD_MB)
#define CHILDREN 4

static char *world;
static struct od_gate started, go;

/* Writes every other page, folds, forks a grandchild, writes the rest: only it may see that. */
static void grandchild(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    for (size_t at = 0; at < SIZE; at += 2 * OD_PAGE)
        od_verify_at(world + at, OD_PAGE, gen, at / 8, "grandchild");
    od_fill(world, SIZE, gen + 5000);
    od_refreeze();
    od_verify(world, SIZE, gen + 5000, "grandchild after its own fold");
}

static void child(void *argument)
{
    uint64_t gen = *(uint64_t *)argument, inherited = gen / 100 * 100;
    od_gate_open(&started, 1);
    od_gate_wait(&go);
    od_verify(world, SIZE, inherited, "child before writing");
    for (size_t at = 0; at < SIZE; at += 2 * OD_PAGE)
        od_fill_at(world + at, OD_PAGE, gen, at / 8);
    od_refreeze();
    pid_t pid = od_spawn(grandchild, &gen);
    for (size_t at = OD_PAGE; at < SIZE; at += 2 * OD_PAGE)
        od_verify_at(world + at, OD_PAGE, inherited, at / 8, "child, pages it left alone");
    od_fill(world, SIZE, gen);
    od_refreeze();
    od_join(pid);
    od_verify(world, SIZE, gen, "child after its own writes");
}

int main(void)
{
    world = od_map(SIZE);
    for (uint64_t round = 1; round <= 6; round++) {
        pid_t pid[CHILDREN];
        uint64_t gen[CHILDREN];
        od_gate_make(&started);
        od_gate_make(&go);
        od_fill(world, SIZE, round * 100);
        for (int i = 0; i < CHILDREN; i++) {
            gen[i] = round * 100 + 1 + i;
            pid[i] = od_spawn(child, &gen[i]);
        }
        for (int i = 0; i < CHILDREN; i++)
            od_gate_wait(&started);
        od_fill(world, SIZE / 2, round * 100 + 50);
        od_refreeze();
        od_gate_open(&go, CHILDREN);
        od_fill_at(world + SIZE / 2, SIZE / 2, round * 100 + 50, SIZE / 16);
        od_refreeze();
        for (int i = 0; i < CHILDREN; i++)
            od_join(pid[i]);
        od_verify(world, SIZE, round * 100 + 50, "parent");
        od_gate_drop(&started);
        od_gate_drop(&go);
    }
    return od_done();
}
