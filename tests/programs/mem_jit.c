/* Code written into memory: W^X cycles, execution after fork on both sides, rewriting while the
 * other runs. */
// odtest: timeout=60
#include "odtest.h"

#define SIZE (8 * OD_MB)
#define SLOT 64
#define SLOTS (SIZE / SLOT)

static unsigned char *code;

/* A function that returns `value`. */
static void emit(unsigned char *at, uint32_t value)
{
#if defined __x86_64__
    at[0] = 0xb8; /* mov eax, value */
    memcpy(at + 1, &value, 4);
    at[5] = 0xc3; /* ret */
#elif defined __aarch64__
    uint32_t word[3] = {0x52800000u | (value & 0xffff) << 5, 0x72a00000u | (value >> 16) << 5,
                        0xd65f03c0u};
    memcpy(at, word, sizeof word);
    __builtin___clear_cache((char *)at, (char *)at + sizeof word);
#else
    (void)at, (void)value;
    od_skip("no code generator for this machine");
#endif
}

static uint32_t value_of(size_t slot, uint32_t gen) { return (uint32_t)(slot * 2654435761u + gen); }

static void emit_range(size_t from, size_t to, uint32_t gen)
{
    for (size_t slot = from; slot < to; slot++)
        emit(code + slot * SLOT, value_of(slot, gen));
}

static void call_range(size_t from, size_t to, uint32_t gen, const char *who)
{
    for (size_t slot = from; slot < to; slot++) {
        uint32_t (*function)(void) = (uint32_t(*)(void))(void *)(code + slot * SLOT);
        uint32_t got = function();
        CHECK(got == value_of(slot, gen), "%s: slot %zu returned %u", who, slot, got);
    }
}

static void protect(size_t from, size_t to, int protection)
{
    OK(mprotect(code + from * SLOT, (to - from) * SLOT, protection));
}

static void child(void *argument)
{
    uint32_t gen = *(uint32_t *)argument;
    size_t third = SLOTS / 4;
    call_range(0, SLOTS, gen, "child");
    protect(third, 2 * third, PROT_READ | PROT_WRITE);
    emit_range(third, 2 * third, gen + 500);
    protect(third, 2 * third, PROT_READ | PROT_EXEC);
    od_refreeze();
    call_range(0, third, gen, "child");
    call_range(third, 2 * third, gen + 500, "child after emitting");
    call_range(2 * third, SLOTS, gen, "child");
}

int main(void)
{
    code = od_map(SIZE);
    for (uint32_t gen = 1; gen < 6; gen++) {
        int writable = gen % 2 ? 0 : PROT_WRITE; /* every other round W and X at once */
        protect(0, SLOTS, PROT_READ | PROT_WRITE);
        emit_range(0, SLOTS, gen);
        if (gen > 1) /* frozen while writable; before that it never was */
            od_run_child((void (*)(void *))od_refreeze, NULL);
        protect(0, SLOTS, PROT_READ | PROT_EXEC | writable);
        call_range(0, SLOTS, gen, "parent");
        pid_t pid = od_spawn(child, &gen);
        protect(0, 640, PROT_READ | PROT_WRITE | PROT_EXEC);
        emit_range(0, 640, gen + 900);
        call_range(0, 640, gen + 900, "parent after emitting");
        od_join(pid);
        od_refreeze();
        call_range(0, 640, gen + 900, "parent, later");
        call_range(640, SLOTS, gen, "parent");
        od_run_child((void (*)(void *))od_refreeze, NULL);
        call_range(640, SLOTS, gen, "parent, after another fork");
    }
    return od_done();
}
