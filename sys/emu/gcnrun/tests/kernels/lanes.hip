#include "device.h"

KERNEL(64) shuffle(int *out, const int *in, int mask) {
    out[item()] = __builtin_amdgcn_ds_bpermute(((lane() ^ mask) & (__builtin_amdgcn_wavefrontsize() - 1)) << 2, in[item()]);
}
KERNEL(64) scatter(int *out, const int *in) {
    out[item()] = __builtin_amdgcn_ds_permute((lane() ^ 5) << 2, in[item()]);
}
KERNEL(64) swizzle(int *out, const int *in) {
    out[2 * item()] = __builtin_amdgcn_ds_swizzle(in[item()], 0x401f);     // lane ^ 16
    out[2 * item() + 1] = __builtin_amdgcn_ds_swizzle(in[item()], 0x801b); // quads reversed
}
KERNEL(64) votes(u32 *out, const int *in) {
    int x = in[item()];
#if !defined(__GFX9__)
    u64 positive = __builtin_amdgcn_ballot_w32(x > 0);
#else
    u64 positive = __builtin_amdgcn_ballot_w64(x > 0);
#endif
    out[4 * item() + 0] = (u32)positive;
    out[4 * item() + 1] = (u32)(positive >> 32);
    out[4 * item() + 2] = __builtin_amdgcn_readfirstlane(x);
    out[4 * item() + 3] = __builtin_amdgcn_readlane(x, 7);
}
// Only the lanes in the branch vote.
KERNEL(64) votes_of_some(u32 *out, const int *in) {
    out[item()] = 0;
    if (in[item()] > 0) {
#if !defined(__GFX9__)
        out[item()] = __builtin_popcount(__builtin_amdgcn_ballot_w32(true));
#else
        out[item()] = __builtin_popcountll(__builtin_amdgcn_ballot_w64(true));
#endif
    }
}

#define DPP(old, x, control, rows, banks, bound) __builtin_amdgcn_update_dpp(old, x, control, rows, banks, bound)
KERNEL(64) dpp(int *out, const int *in) {
    int x = in[item()], *o = out + 7 * item();
    o[0] = DPP(0, x, 0x111, 0xf, 0xf, false);  // row_shr:1
    o[1] = DPP(5, x, 0x118, 0xa, 0xf, false);  // row_shr:8 in rows 1 and 3
    o[2] = DPP(0, x, 0x140, 0xf, 0xf, true);   // row_mirror
    o[3] = DPP(0, x, 0x141, 0xf, 0xf, true);   // row_half_mirror
    o[4] = DPP(0, x, 0x128, 0xf, 0xf, true);   // row_ror:8
    o[5] = DPP(0, x, 0x1b, 0xf, 0xf, true);    // quad_perm:[3,2,1,0]
    o[6] = DPP(-1, x, 0x104, 0xf, 0x5, false); // row_shl:4 in banks 0 and 2
}
#if defined(__GFX11__) || defined(__GFX12__)
KERNEL(64) permlane(int *out, const int *in) {
    int x = in[item()], *o = out + 5 * item();
    o[0] = __builtin_amdgcn_permlanex16(x, x, 0x76543210, 0xfedcba98, true, false);
    o[1] = __builtin_amdgcn_permlane16(x, x, 0x01234567, 0x89abcdef, true, false);
    o[2] = __builtin_amdgcn_mov_dpp8(x, 0x1234567);
    o[3] = DPP(0, x, 0x163, 0xf, 0xf, true); // row_xmask:3
    o[4] = DPP(0, x, 0x152, 0xf, 0xf, true); // row_share:2
}
#else
KERNEL(64) broadcasts(int *out, const int *in) {
    int x = in[item()], *o = out + 3 * item();
    o[0] = DPP(7, x, 0x142, 0xa, 0xf, false); // row_bcast:15
    o[1] = DPP(7, x, 0x143, 0xc, 0xf, false); // row_bcast:31
    o[2] = DPP(0, x, 0x138, 0xf, 0xf, false); // wave_shr:1
}
#endif
