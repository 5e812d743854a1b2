// Arguments of attention over pages with a pattern, whose score and mask src/kernels/pattern_attention generates.
#pragma once
#include "attention_pattern.h"
#include "paged_attention.h"

namespace hipvit {

/// `paged_attention_pattern`: paged_attention with the score and the mask of the code's pattern.
struct PagedAttentionPatternArgs {
    /// Arguments of the attention itself.
    PagedAttentionArgs attention;
    /// What score and mask read. The lengths of the rows replace its queries and keys.
    AttentionPattern pattern;
};

} // namespace hipvit
