//! AdamW's moments in 16 or 8 bits, packed into words of 32 bits.
//!
//! The words have the type f32, and none is NaN or infinite, so that copies and conversions to f64 keep their bits.
//!
//! Both forms round at random: up with the probability that keeps the mean. With `beta2 = 0.999` a second moment changes by at most a
//! thousandth of itself in most steps. Rounding to nearest would leave it as it is, since numbers in bf16 have distances of 1/256 to 1/128.
//! The random numbers are a hash of the number of the update and the index of the element, so that equal steps have equal bits.

/// Elements of a block in 8 bits. They share two scales.
pub const BLOCK: usize = 256;

/// Words of a block in 8 bits: two scales, then four codes of first moments per word, then four codes of second moments per word.
pub const BLOCK_WORDS: usize = 2 + 2 * BLOCK / 4;

/// Largest level of a first moment: the moment is `scale · (level / 126)²`, with its sign.
const FIRST_LEVELS: u8 = 126;

/// Largest level of a second moment: the moment is `scale · (level / 253)⁴`.
const SECOND_LEVELS: u8 = 253;

/// Two numbers from 0 to below 1 in 16 bits, by which the moments of an element are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise(u32);

impl Noise {
    /// Returns the numbers of an element. `update` is the number of the update, as operands of ops have it.
    pub fn new(update: f32, element: usize) -> Self {
        Self(mixed(element as u32 ^ mixed(update.to_bits())))
    }

    fn halves(self) -> [u32; 2] {
        [self.0 & 0xFFFF, self.0 >> 16]
    }

    fn numbers(self) -> [f32; 2] {
        self.halves().map(|half| half as f32 / 65536.0)
    }
}

/// Returns a hash of `x` (lowbias32 of <https://nullprogram.com/blog/2018/07/31/>).
fn mixed(mut x: u32) -> u32 {
    x = (x ^ x >> 16).wrapping_mul(0x7FEB_352D);
    x = (x ^ x >> 15).wrapping_mul(0x846C_A68B);
    x ^ x >> 16
}

/// Returns the word of two moments in bf16: the first moment in the upper half, the second in the lower half.
pub fn pack_bf16([first, second]: [f32; 2], noise: Noise) -> f32 {
    let [low, high] = noise.halves();
    let first = first.to_bits().wrapping_add(low) & 0xFFFF_0000;
    let second = second.to_bits().wrapping_add(high) >> 16;
    f32::from_bits(first | second)
}

/// Returns the moments of a word of [`pack_bf16`].
pub fn unpack_bf16(word: f32) -> [f32; 2] {
    let bits = word.to_bits();
    [bits & 0xFFFF_0000, bits << 16].map(f32::from_bits)
}

/// Returns the number of words for the moments of `elements` elements in 8 bits.
pub fn words_int8(elements: usize) -> usize {
    elements.div_ceil(BLOCK) * BLOCK_WORDS
}

/// Packs the moments of at most [`BLOCK`] elements into the [`BLOCK_WORDS`] words of a block. `start` is the index of the first element.
pub fn pack_int8(moments: &[[f32; 2]], update: f32, start: usize, words: &mut [f32]) {
    let largest = |of: usize| moments.iter().map(|moment| moment[of].abs()).fold(0.0, f32::max);
    let scales = [largest(0), largest(1)];
    let mut codes = [[0u8; BLOCK]; 2];
    for (index, moment) in moments.iter().enumerate() {
        let noise = Noise::new(update, start + index).numbers();
        codes[0][index] = first_code(moment[0], scales[0], noise[0]);
        codes[1][index] = second_code(moment[1], scales[1], noise[1]);
    }
    let (head, rest) = words.split_at_mut(2);
    head.copy_from_slice(&scales);
    for (word, codes) in rest.iter_mut().zip(codes.as_flattened().as_chunks().0) {
        *word = f32::from_bits(u32::from_le_bytes(*codes));
    }
}

/// Calls `each` with the index and the moments of each element of a block.
pub fn unpack_int8(words: &[f32], mut each: impl FnMut(usize, [f32; 2])) {
    let code = |of: usize, index: usize| {
        let word = words[2 + (of * BLOCK + index) / 4].to_bits();
        word.to_le_bytes()[index % 4]
    };
    for index in 0..BLOCK {
        let (first, second) = (code(0, index), code(1, index));
        each(
            index,
            [first_moment(first, words[0]), second_moment(second, words[1])],
        );
    }
}

/// Returns the code of a first moment: the sign, then 7 bits of the level. The 7 bits are never all ones, so no word is NaN.
fn first_code(moment: f32, scale: f32, noise: f32) -> u8 {
    let level = level(moment.abs() / scale, f32::sqrt, |x| x * x, FIRST_LEVELS, noise);
    level | u8::from(moment.is_sign_negative()) << 7
}

fn first_moment(code: u8, scale: f32) -> f32 {
    let root = f32::from(code & 0x7F) / f32::from(FIRST_LEVELS);
    let moment = scale * (root * root);
    if code & 0x80 == 0 { moment } else { -moment }
}

/// Returns the code of a second moment: the level, or 1 more from 127 on, since the lower 7 bits are never all ones. A number above 0 never
/// becomes 0, by whose root AdamW would divide.
fn second_code(moment: f32, scale: f32, noise: f32) -> u8 {
    let level = level(
        moment / scale,
        |x| x.sqrt().sqrt(),
        |x| x * x * (x * x),
        SECOND_LEVELS,
        noise,
    );
    let level = level.max(u8::from(moment > 0.0));
    level + u8::from(level >= 127)
}

fn second_moment(code: u8, scale: f32) -> f32 {
    let level = code - u8::from(code >= 127);
    let root = f32::from(level) / f32::from(SECOND_LEVELS);
    scale * (root * root * (root * root))
}

/// Returns one of the two levels beside `share`, the upper one with the probability that keeps the mean. A level means
/// `power(level / levels)`, and `root` is the inverse of `power`.
fn level(share: f32, root: impl Fn(f32) -> f32, power: impl Fn(f32) -> f32, levels: u8, noise: f32) -> u8 {
    if share.is_nan() {
        // All moments of the block are 0.
        return 0;
    }
    let most = f32::from(levels);
    let lower = (root(share) * most).floor().min(most - 1.0);
    let [low, high] = [lower, lower + 1.0].map(|level| power(level / most));
    let probability = (share - low) / (high - low);
    lower as u8 + u8::from(noise < probability)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: u32) -> impl Iterator<Item = f32> {
        (0..).map(move |i| mixed(seed.wrapping_add(i)) as f32 / 2.0_f32.powi(32))
    }

    #[test]
    fn bf16_rounds_to_a_neighbour_and_keeps_the_mean() {
        for (first, second) in [(0.3f32, 0.001), (-1.7e-5, 3e-11), (0.25, 0.5), (0.0, 0.0)] {
            let (mut sums, updates) = ([0.0f64; 2], 4096);
            for update in 1..=updates {
                let moments = unpack_bf16(pack_bf16([first, second], Noise::new(update as f32, 77)));
                for (sum, (found, exact)) in sums.iter_mut().zip(moments.into_iter().zip([first, second])) {
                    assert!(
                        (found - exact).abs() <= exact.abs() / 128.0,
                        "{found}, expected {exact}"
                    );
                    *sum += f64::from(found) / f64::from(updates);
                }
            }
            for (mean, exact) in sums.into_iter().zip([first, second].map(f64::from)) {
                // A neighbour is at a distance of 1/128 at most: six deviations of the mean of 4096 numbers.
                let bound = 6.0 * exact.abs() / 128.0 / 2.0 / 64.0;
                assert!((mean - exact).abs() <= bound, "{mean}, expected {exact}");
            }
        }
    }

    #[test]
    fn int8_rounds_to_a_neighbour_and_keeps_the_mean() {
        let moments: Vec<[f32; 2]> = numbers(1)
            .zip(numbers(1000))
            .map(|(a, b)| [0.1 * (2.0 * a - 1.0).powi(3), 0.03 * b.powi(4) + 1e-6])
            .take(200)
            .collect();
        let (mut sums, updates) = (vec![[0.0f64; 2]; 200], 2048);
        let mut words = vec![f32::NAN; BLOCK_WORDS];
        for update in 1..=updates {
            pack_int8(&moments, update as f32, 512, &mut words);
            assert!(words.iter().all(|word| word.is_finite()));
            unpack_int8(&words, |index, found| {
                let Some(exact) = moments.get(index) else {
                    assert_eq!(found, [0.0; 2]);
                    return;
                };
                for of in 0..2 {
                    sums[index][of] += f64::from(found[of]) / f64::from(updates);
                    // The distance of two levels, for a level of 1 or more.
                    let root = [2.0, 4.0][of];
                    let levels = f32::from([FIRST_LEVELS, SECOND_LEVELS][of]);
                    let share = (exact[of] / words[of]).abs().powf(1.0 / root) + 1.0 / levels;
                    let distance = words[of] * (share.powf(root) - (share - 1.0 / levels).powf(root)) * 1.2;
                    let error = (found[of] - exact[of]).abs();
                    assert!(error <= distance, "{index}: {found:?}, expected {exact:?}");
                }
            });
        }
        for (index, (sum, exact)) in sums.iter().zip(&moments).enumerate() {
            for of in 0..2 {
                let exact = f64::from(exact[of]);
                let scale = f64::from(words[of]);
                let (root, levels) = ([2.0, 4.0][of], f64::from([FIRST_LEVELS, SECOND_LEVELS][of]));
                let share = (exact.abs() / scale).powf(1.0 / root);
                let distance = scale * ((share + 1.0 / levels).powf(root) - share.powf(root));
                // Six deviations of the mean of 2048 numbers.
                let bound = 6.0 * distance / 2.0 / f64::from(updates).sqrt() + 1e-6 * exact.abs();
                assert!(
                    (sum[of] - exact).abs() <= bound,
                    "{index}: {sum:?}, expected {exact}"
                );
            }
        }
    }

    #[test]
    fn all_codes_are_finite_words_and_decode_to_what_they_encode() {
        for scale in [1.0f32, 3e-7] {
            for level in 0..=FIRST_LEVELS {
                for sign in [0, 0x80] {
                    let moment = first_moment(level | sign, scale);
                    // At a level, the noise decides nothing but a rounding error.
                    let codes = [0.001, 0.999].map(|noise| first_code(moment, scale, noise) & 0x7F);
                    assert!(codes.contains(&level), "{level}: {codes:?}");
                }
            }
            for code in (0..127).chain(128..=254) {
                let moment = second_moment(code, scale);
                let codes = [0.001, 0.999].map(|noise| second_code(moment, scale, noise));
                assert!(codes.contains(&code), "{code}: {codes:?}");
                for top in [code, code.wrapping_add(128)] {
                    assert!(
                        f32::from_bits(u32::from_le_bytes([0xFF, 0xFF, 0xFF, top])).is_finite()
                            || top & 0x7F == 0x7F
                    );
                }
            }
        }
        // The smallest second moment is not lost.
        assert!(second_moment(second_code(1e-20, 1.0, 0.5), 1.0) > 0.0);
        assert_eq!(second_code(0.0, 1.0, 0.0), 0);
    }
}
