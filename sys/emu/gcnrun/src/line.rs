//! A line of the disassembly, split into mnemonic, operands and modifiers.

use crate::arch::Arch;
use crate::operands::{self, Place, Source, Type};
use crate::wave::AGPR;

/// A line of the disassembly.
#[derive(Debug)]
pub(crate) struct Line<'t> {
    /// The mnemonic with its encoding suffix.
    pub(crate) mnemonic: &'t str,
    pub(crate) operands: Vec<&'t str>,
    modifiers: Vec<(&'t str, &'t str)>,
    /// The second half of a dual instruction.
    pub(crate) dual: Option<Box<Line<'t>>>,
    /// The first word of the encoding.
    pub(crate) word: u32,
    /// Address of the next instruction.
    pub(crate) end: u64,
    pub(crate) arch: Arch,
    /// Set by decoding: the lower half of the word is a branch offset.
    pub(crate) branches: bool,
}

/// Modifiers without a value.
const FLAGS: &[&str] = &[
    "glc",
    "slc",
    "dlc",
    "sc0",
    "sc1",
    "nt",
    "clamp",
    "gds",
    "lds",
    "offen",
    "idxen",
    "row_mirror",
    "row_half_mirror",
    "tfe",
    "scc",
    "high",
];

impl<'t> Line<'t> {
    pub(crate) fn parse(line: &'t str, address: u64, arch: Arch) -> Option<Self> {
        let (text, words) = line.split_once("//")?;
        let word = words.split_once(':')?.1.split_whitespace().next()?;
        let word = u32::from_str_radix(word, 16).ok()?;
        Self::split(text.trim(), word, address + 4, arch)
    }

    fn split(text: &'t str, word: u32, end: u64, arch: Arch) -> Option<Self> {
        if let Some((first, second)) = text.split_once(" :: ") {
            let mut line = Self::split(first, word, end, arch)?;
            line.dual = Some(Box::new(Self::split(second, word, end, arch)?));
            return Some(line);
        }
        let text = text.trim();
        let (mnemonic, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let mut line = Self {
            mnemonic,
            operands: Vec::new(),
            modifiers: Vec::new(),
            dual: None,
            word,
            end,
            arch,
            branches: false,
        };
        for part in split_outside(rest.trim(), ',') {
            let mut plain: Option<&'t str> = None;
            for item in split_outside(part, ' ') {
                let name = item.split(':').next().unwrap_or(item);
                if FLAGS.contains(&item) {
                    line.modifiers.push((item, ""));
                } else if item.contains(':')
                    && !name.is_empty()
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                {
                    line.modifiers.push((name, &item[name.len() + 1..]));
                } else {
                    // Operands that contain spaces (`vmcnt(0) lgkmcnt(0)`) stay together.
                    plain = Some(match plain {
                        Some(before) => {
                            let begin = before.as_ptr() as usize - part.as_ptr() as usize;
                            let end = item.as_ptr() as usize - part.as_ptr() as usize + item.len();
                            &part[begin..end]
                        }
                        None => item,
                    });
                }
            }
            line.operands.extend(plain);
        }
        Some(line)
    }

    /// Removes a modifier and returns its value, which is empty for a flag.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'t str> {
        let index = self.modifiers.iter().position(|modifier| modifier.0 == name)?;
        Some(self.modifiers.swap_remove(index).1)
    }

    pub(crate) fn flag(&mut self, name: &str) -> bool {
        self.take(name).is_some()
    }

    /// Removes a numeric modifier and returns its value, 0 if it is absent.
    pub(crate) fn number(&mut self, name: &str) -> Result<i64, String> {
        match self.take(name) {
            Some(value) => operands::integer(value).ok_or_else(|| format!("{name}:{value}")),
            None => Ok(0),
        }
    }

    /// Removes a modifier that is a list of bits; `default` replaces absent bits.
    pub(crate) fn bits(&mut self, name: &str, default: bool) -> Result<[bool; 4], String> {
        let mut bits = [default; 4];
        if let Some(value) = self.take(name) {
            for (bit, item) in bits.iter_mut().zip(list(value)?) {
                *bit = item == 1;
            }
        }
        Ok(bits)
    }

    /// True if a modifier is present.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.modifiers.iter().any(|modifier| modifier.0 == name)
    }

    /// Removes modifiers that only control caches.
    pub(crate) fn ignore_cache_policy(&mut self) {
        for name in ["glc", "slc", "dlc", "sc0", "sc1", "nt", "scc", "th", "scope"] {
            self.take(name);
        }
    }

    /// An error if a modifier is left over.
    pub(crate) fn finish(&self) -> Result<(), String> {
        match self.modifiers.first() {
            Some((name, "")) => Err(format!("modifier {name}")),
            Some((name, value)) => Err(format!("modifier {name}:{value}")),
            None => match &self.dual {
                Some(dual) => dual.finish(),
                None => Ok(()),
            },
        }
    }

    pub(crate) fn operand(&self, index: usize) -> Result<&'t str, String> {
        self.operands
            .get(index)
            .copied()
            .ok_or_else(|| format!("{} with {} operands", self.mnemonic, self.operands.len()))
    }

    /// An operand as a source of this type, without a selection of bytes or halves.
    pub(crate) fn source(&self, index: usize, ty: Type) -> Result<[Source; 2], String> {
        let word = self.operand(index)?;
        operands::source(word, ty, None).ok_or_else(|| format!("operand {word} of {}", self.mnemonic))
    }

    /// An operand that must be a vector register: its index, and how many it spans.
    pub(crate) fn vgpr(&self, index: usize) -> Result<(u16, u16), String> {
        let word = self.operand(index)?;
        match operands::register(word) {
            Some(operands::Register {
                place: Place::Vgpr(register),
                count,
            }) => Ok((register, count)),
            _ => Err(format!("operand {word} of {}", self.mnemonic)),
        }
    }

    /// An operand that must be a scalar register, or `null`.
    pub(crate) fn sgpr(&self, index: usize) -> Result<Option<u8>, String> {
        let word = self.operand(index)?;
        if matches!(word, "null" | "off") {
            return Ok(None);
        }
        match operands::register(word) {
            Some(operands::Register {
                place: Place::Sgpr(register),
                ..
            }) => Ok(Some(register)),
            _ => Err(format!("operand {word} of {}", self.mnemonic)),
        }
    }

    /// An operand that is a number.
    pub(crate) fn immediate(&self, index: usize) -> Result<i64, String> {
        let word = self.operand(index)?;
        operands::integer(word).ok_or_else(|| format!("operand {word} of {}", self.mnemonic))
    }

    /// The mnemonic without the suffix of its encoding.
    pub(crate) fn base(&self) -> &'t str {
        let mut base = self.mnemonic;
        for suffix in ["_dpp8", "_dpp", "_sdwa", "_e32", "_e64"] {
            base = base.strip_suffix(suffix).unwrap_or(base);
        }
        base.strip_suffix("_e64").unwrap_or(base)
    }

    /// One more than the highest vector and accumulation register of the operands.
    pub(crate) fn registers(&self) -> [usize; 2] {
        let mut highest = [0; 2];
        for word in &self.operands {
            let (_, word) = operands::signs(word);
            if let Some(operands::Register {
                place: Place::Vgpr(first),
                count,
            }) = operands::register(word)
            {
                let (first, bank) = if usize::from(first) >= AGPR {
                    (first - AGPR as u16, 1)
                } else {
                    (first, 0)
                };
                highest[bank] = highest[bank].max(usize::from(first + count));
            }
        }
        if let Some(dual) = &self.dual {
            let other = dual.registers();
            highest = [highest[0].max(other[0]), highest[1].max(other[1])];
        }
        highest
    }
}

/// The numbers of `[1,0,3]`.
pub(crate) fn list(value: &str) -> Result<Vec<i64>, String> {
    value
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .and_then(|items| {
            items
                .split(',')
                .map(|item| operands::integer(item.trim()))
                .collect()
        })
        .ok_or_else(|| format!("the list {value}"))
}

/// Splits at a character outside brackets, and drops empty parts.
fn split_outside(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            _ if c == separator && depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCH: Arch = Arch {
        gfx9: false,
        gfx11: true,
        gfx12: false,
        float8: None,
        lanes: 32,
    };

    #[test]
    fn lines() {
        let text = "\tv_fma_mix_f32 v73, -|v74|, v107, v73 op_sel_hi:[1,0,0] clamp // 000000007A58: CC200049 0D26D74A";
        let mut line = Line::parse(text, 0x7a58, ARCH).unwrap();
        assert_eq!(line.mnemonic, "v_fma_mix_f32");
        assert_eq!(line.operands, ["v73", "-|v74|", "v107", "v73"]);
        assert_eq!(line.word, 0xcc20_0049);
        assert_eq!(line.bits("op_sel_hi", true).unwrap(), [true, false, false, true]);
        assert_eq!(line.finish(), Err("modifier clamp".to_owned()));
        assert!(line.flag("clamp"));
        assert_eq!(line.finish(), Ok(()));
        assert_eq!(line.registers(), [108, 0]);
    }

    #[test]
    fn dual_lines_and_waits() {
        let line = Line::split("v_dual_mov_b32 v9, 0 :: v_dual_lshlrev_b32 v8, 2, v0", 0, 0, ARCH).unwrap();
        assert_eq!(line.operands, ["v9", "0"]);
        assert_eq!(line.dual.unwrap().operands, ["v8", "2", "v0"]);
        let line = Line::split("s_waitcnt vmcnt(0) lgkmcnt(0)", 0, 0, ARCH).unwrap();
        assert_eq!(line.operands, ["vmcnt(0) lgkmcnt(0)"]);
        let line = Line::split("ds_swizzle_b32 v2, v1 offset:swizzle(SWAP,16)", 0, 0, ARCH).unwrap();
        assert_eq!(line.operands, ["v2", "v1"]);
    }
}
