// Hides instruction sets after AVX2 and FMA (AVX-512, AVX-VNNI, AMX, AVX10) from a program. CPUID faults, and the
// signal handler answers without those bits. Needs Linux on a processor with CPUID faulting (`cpuid_fault` in
// /proc/cpuinfo), or a virtual machine with it. `benches/avx2` loads it.
//
// The loader has run before, so functions of the C library, such as memcpy, keep the implementation that they chose.
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

// asm/prctl.h of Linux
enum { ARCH_SET_CPUID = 0x1012 };

static long let_cpuid(int allowed) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed); }

// Intel's Software Developer's Manual, volume 2, CPUID, leaf 7.
static void hide(unsigned leaf, unsigned subleaf, unsigned r[4]) {
    if (leaf == 7 && subleaf == 0) {
        r[1] &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31); // AVX512 F, DQ, IFMA, PF, ER, CD, BW, VL
        r[2] &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14); // AVX512 VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ
        r[3] &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 23); // AVX512 4VNNIW, 4FMAPS, VP2INTERSECT, FP16
        r[3] &= ~(1u << 22 | 1u << 24 | 1u << 25); // AMX BF16, TILE, INT8
    } else if (leaf == 7 && subleaf == 1) {
        r[0] &= ~(1u << 4 | 1u << 5 | 1u << 21 | 1u << 23); // AVX-VNNI, AVX512 BF16, AMX FP16, AVX-IFMA
        r[3] &= ~(1u << 4 | 1u << 5 | 1u << 8 | 1u << 10 | 1u << 19); // AVX-VNNI INT8, AVX-NE-CONVERT, AMX COMPLEX, AVX-VNNI INT16, AVX10
    }
}

static void answer(int signal_number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)registers[REG_RIP];
    if (info->si_code != SI_KERNEL || at[0] != 0x0f || at[1] != 0xa2) { // not CPUID
        signal(signal_number, SIG_DFL); // and fails again
        return;
    }
    unsigned leaf = registers[REG_RAX], subleaf = registers[REG_RCX], r[4];
    let_cpuid(1);
    __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
    let_cpuid(0);
    hide(leaf, subleaf, r);
    registers[REG_RAX] = r[0];
    registers[REG_RBX] = r[1];
    registers[REG_RCX] = r[2];
    registers[REG_RDX] = r[3];
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void) {
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (sigaction(SIGSEGV, &action, NULL) || let_cpuid(0)) {
        perror("benches/avx2: CPUID cannot be made to fault here");
        _exit(75);
    }
}
