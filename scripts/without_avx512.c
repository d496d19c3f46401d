/* Hides AVX-512 and AMX from a program, to time what it does on a processor that has AVX2 alone:
 *
 *   cc -O2 -shared -fPIC -o without_avx512.so scripts/without_avx512.c
 *   LD_PRELOAD=$PWD/without_avx512.so target/release/step_throughput --part lstm
 *
 * Linux lets a process fault on CPUID where the processor can (`cpuid_fault` in /proc/cpuinfo). The handler answers in its place, without
 * the features' bits. What chose its instructions before this library was loaded, such as the C library's memcpy, keeps them. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012

static long allow_cpuid(int allowed) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, (unsigned long)allowed); }

static uint32_t bits(const int *places, int count) {
    uint32_t all = 0;
    for (int i = 0; i < count; i++) all |= 1u << places[i];
    return all;
}
#define BITS(...) bits((const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

static void answer(int signal_number, siginfo_t *info, void *context) {
    (void)signal_number, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    if (!code || code[0] != 0x0f || code[1] != 0xa2) {
        signal(SIGSEGV, SIG_DFL); /* a fault of the program's own, which happens again */
        return;
    }
    uint32_t leaf = registers[REG_RAX], subleaf = registers[REG_RCX], a, b, c, d;
    allow_cpuid(1);
    __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(subleaf));
    allow_cpuid(0);
    if (leaf == 7 && subleaf == 0) {
        b &= ~BITS(16, 17, 21, 26, 27, 28, 30, 31); /* AVX-512 F, DQ, IFMA, PF, ER, CD, BW, VL */
        c &= ~BITS(1, 6, 11, 12, 14);               /* AVX-512 VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ */
        d &= ~BITS(2, 3, 8, 22, 23, 24, 25);        /* other AVX-512; AMX BF16, AVX-512 FP16, AMX tiles and INT8 */
    } else if (leaf == 7 && subleaf == 1) {
        a &= ~BITS(4, 5, 21); /* AVX VNNI, AVX-512 BF16, AMX FP16 */
    }
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void hide(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &action, NULL);
    if (allow_cpuid(0) != 0) {
        fputs("error: this processor or system cannot hide CPUID\n", stderr);
        exit(2);
    }
}
