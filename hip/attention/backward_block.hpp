// What a block of the kernels of attention's backward pass computes, and their entries.
#pragma once
#include "attention/backward_bias.hpp"
#include "attention/backward_kv.hpp"
#include "attention/backward_q.hpp"

namespace hipvit {

// `image` is the chunk of images in the kernel of the bias.
template <class Block> HIPVIT_DEVICE void attention_backward(const typename Block::Args &args,
                                                             const typename Block::PolicyArgs &of_policy) {
    alignas(LDS_ALIGNMENT) HIPVIT_LDS static Vec128 memory[Block::LDS_VECS];
    const u32 blocks = Block::blocks_per_head(args.operands);
    const u32 head = block_index() / blocks % args.operands.heads, image = block_index() / blocks / args.operands.heads;
    if (image >= args.operands.images) return;
    Block(args, of_policy, memory, image, head, block_index() % blocks).run(args);
}

} // namespace hipvit
