//! Settings, from environment variables and `hip_emu_configure`. The README lists the variables.

use std::path::PathBuf;
use std::time::Duration;
use std::{env, fmt};

use gcnrun::Order;

use crate::faults::Nth;
use crate::parts::{self, PARTS, Part};

/// When submitted work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// When something waits for it; the newest stream first.
    Late,
    /// When something waits for it, or randomly sooner; in a random order, from the seed.
    Random,
    /// At once, on another thread.
    Eager,
}

#[derive(Debug)]
pub(crate) struct Settings {
    /// One for each device.
    pub(crate) parts: Vec<&'static Part>,
    /// Memory of each device, in bytes.
    pub(crate) memory: u64,
    pub(crate) order: Order,
    pub(crate) schedule: Schedule,
    pub(crate) seed: u64,
    /// True if unaligned loads and stores are faults.
    pub(crate) alignment: bool,
    /// Instructions that a wave may execute.
    pub(crate) budget: Option<u64>,
    pub(crate) log: Option<PathBuf>,
    /// The file that gets the counts of each launch.
    pub(crate) profile: Option<PathBuf>,
    /// Blocks of a grid that run; the others, and work of other libraries, are left out.
    pub(crate) sample: Option<u64>,
    /// The file that gets where the marked bytes go, and which bytes these are.
    pub(crate) taint: Option<(PathBuf, Mark)>,
    pub(crate) faults: InjectedFaults,
    /// Time limit for RCCL to wait for other ranks.
    pub(crate) rccl_timeout: Duration,
}

/// The occurrence of each operation that fails.
#[derive(Debug)]
pub(crate) struct InjectedFaults {
    pub(crate) allocation: Nth,
    pub(crate) launch: Nth,
    pub(crate) copy: Nth,
    /// The launch or copy at which the device is lost.
    pub(crate) device_loss: Nth,
    /// The replay that leaves its last piece of work out.
    pub(crate) replay: Nth,
    /// The submission of RCCL that never ends.
    pub(crate) collective: Nth,
}

/// Bytes of a buffer, which kernels get by a pointer among their arguments: they are marked when these are launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Prefix of the kernels' names.
    pub(crate) kernel: String,
    /// Index of the pointer, from 0.
    pub(crate) pointer: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Mark {
    /// `patch_extract:0:1536:3`: the kernel, the pointer, the offset from it, the number of bytes.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let mark = Self {
            kernel: parts.next().filter(|name| !name.is_empty())?.to_owned(),
            pointer: parts.next()?.parse().ok()?,
            offset: parts.next()?.parse().ok()?,
            bytes: parts.next()?.parse().ok().filter(|&bytes| bytes > 0)?,
        };
        parts.next().is_none().then_some(mark)
    }
}

/// The devices that a program sees, as HIP has it: those of a list of ordinals, up to the first that there is not.
fn visible(parts: &[&'static Part], list: &str) -> Vec<&'static Part> {
    let named = list
        .split(',')
        .map(|ordinal| parts.get(ordinal.trim().parse::<usize>().ok()?).copied());
    named.map_while(|part| part).collect()
}

/// Setting by which programs that use hipvit-sys configure it.
const CONFIGURED_BY: &str = "HIPVIT_PROVIDER=emu";

/// An invalid setting, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidSetting {
    name: String,
    value: String,
    reason: String,
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.name == CONFIGURED_BY { ':' } else { '=' };
        write!(f, "{}{between}{}: {}", self.name, self.value, self.reason)
    }
}

impl Settings {
    /// The environment's settings; `configured` takes precedence over `HIP_EMU_ARCH` and `HIP_EMU_DEVICES`.
    pub(crate) fn read(configured: Option<&str>) -> Result<Self, InvalidSetting> {
        Self::from(configured, |name| {
            env::var(name).ok().filter(|value| !value.is_empty())
        })
    }

    fn from(
        configured: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, InvalidSetting> {
        let parsed = |name: &str, parse: &dyn Fn(&str) -> Option<u64>, reason: &str| match variable(name) {
            None => Ok(None),
            Some(value) => parse(&value).map(Some).ok_or(InvalidSetting {
                name: name.to_owned(),
                value,
                reason: reason.to_owned(),
            }),
        };
        let number = |name| parsed(name, &|value| value.parse().ok(), "expected an integer");
        let nth = |name| {
            let positive = |value: &str| value.parse().ok().filter(|&n| n > 0);
            parsed(name, &positive, "expected a positive integer")
        };

        let parts = match configured {
            Some(text) => devices(CONFIGURED_BY, text)?,
            None => {
                let text = variable("HIP_EMU_ARCH").unwrap_or_else(|| PARTS[0].arch.to_owned());
                let parts = devices("HIP_EMU_ARCH", &text)?;
                let count = number("HIP_EMU_DEVICES")?.unwrap_or(parts.len() as u64);
                // The list is truncated, or repeated from its beginning.
                (0..count as usize).map(|n| parts[n % parts.len()]).collect()
            }
        };
        let shown = variable("HIP_VISIBLE_DEVICES").or_else(|| variable("CUDA_VISIBLE_DEVICES"));
        let parts = match &shown {
            Some(list) => visible(&parts, list),
            None => parts,
        };
        let seed = number("HIP_EMU_SEED")?.unwrap_or(0);
        let wrong = |name: &str, value: &str, reason: &str| InvalidSetting {
            name: name.to_owned(),
            value: value.to_owned(),
            reason: reason.to_owned(),
        };
        Ok(Self {
            parts,
            memory: parsed("HIP_EMU_MEMORY", &bytes, "expected a size such as 512M or 8G")?
                .unwrap_or(4 << 30),
            order: match variable("HIP_EMU_ORDER").as_deref() {
                None | Some("forward") => Order::Forward,
                Some("reversed") => Order::Reversed,
                Some("shuffled") => Order::Shuffled(seed),
                Some(other) => {
                    return Err(wrong(
                        "HIP_EMU_ORDER",
                        other,
                        "expected forward, reversed or shuffled",
                    ));
                }
            },
            schedule: match variable("HIP_EMU_SCHEDULE").as_deref() {
                None | Some("late") => Schedule::Late,
                Some("random") => Schedule::Random,
                Some("eager") => Schedule::Eager,
                Some(other) => {
                    return Err(wrong("HIP_EMU_SCHEDULE", other, "expected late, random or eager"));
                }
            },
            alignment: match variable("HIP_EMU_ALIGNMENT").as_deref() {
                None | Some("any") => false,
                Some("strict") => true,
                Some(other) => return Err(wrong("HIP_EMU_ALIGNMENT", other, "expected any or strict")),
            },
            seed,
            budget: number("HIP_EMU_BUDGET")?,
            log: variable("HIP_EMU_LOG").map(PathBuf::from),
            profile: variable("HIP_EMU_PROFILE").map(PathBuf::from),
            sample: match nth("HIP_EMU_PROFILE_SAMPLE")? {
                Some(_) if variable("HIP_EMU_PROFILE").is_none() => {
                    return Err(wrong(
                        "HIP_EMU_PROFILE_SAMPLE",
                        &variable("HIP_EMU_PROFILE_SAMPLE").unwrap_or_default(),
                        "nothing is counted without HIP_EMU_PROFILE",
                    ));
                }
                sample => sample,
            },
            taint: match (variable("HIP_EMU_TAINT"), variable("HIP_EMU_TAINT_MARK")) {
                (None, None) => None,
                (Some(path), _) if variable("HIP_EMU_PROFILE").is_some() => {
                    let reason = "HIP_EMU_PROFILE is set, and a launch is counted or followed";
                    return Err(wrong("HIP_EMU_TAINT", &path, reason));
                }
                (Some(path), Some(text)) => {
                    let reason = "expected the beginning of a kernel's name, which of its pointers, an offset and a number \
                                  of bytes, as in patch_extract:0:1536:3";
                    let mark = Mark::parse(&text);
                    let mark = mark.ok_or_else(|| wrong("HIP_EMU_TAINT_MARK", &text, reason))?;
                    Some((path.into(), mark))
                }
                (Some(path), None) => {
                    let reason = "HIP_EMU_TAINT_MARK does not say which bytes are followed";
                    return Err(wrong("HIP_EMU_TAINT", &path, reason));
                }
                (None, Some(text)) => {
                    let reason = "HIP_EMU_TAINT does not name a file";
                    return Err(wrong("HIP_EMU_TAINT_MARK", &text, reason));
                }
            },
            faults: InjectedFaults {
                allocation: nth("HIP_EMU_FAIL_ALLOC")?,
                launch: nth("HIP_EMU_FAIL_LAUNCH")?,
                copy: nth("HIP_EMU_FAIL_COPY")?,
                device_loss: nth("HIP_EMU_LOSE_DEVICE")?,
                replay: nth("HIP_EMU_CORRUPT_REPLAY")?,
                collective: nth("HIP_EMU_HANG_COLLECTIVE")?,
            },
            rccl_timeout: Duration::from_secs(nth("HIP_EMU_RCCL_TIMEOUT")?.unwrap_or(300)),
        })
    }
}

/// Checks the argument of `hip_emu_configure`.
pub(crate) fn check_configured(text: &str) -> Result<(), InvalidSetting> {
    devices(CONFIGURED_BY, text).map(drop)
}

/// `gfx942`, `gfx942x2`, `gfx90a,gfx1100`: processors, each with an optional count. `none` means no device.
fn devices(name: &str, text: &str) -> Result<Vec<&'static Part>, InvalidSetting> {
    let wrong = || {
        let known: Vec<_> = PARTS.iter().map(|part| part.arch).collect();
        InvalidSetting {
            name: name.to_owned(),
            value: text.to_owned(),
            reason: format!(
                "expected a processor ({}), `xN` behind it for N of them, several separated by commas",
                known.join(", ")
            ),
        }
    };
    if text == "none" {
        return Ok(Vec::new());
    }
    let mut devices = Vec::new();
    for item in text.split(',') {
        let (arch, count) = match item.split_once('x') {
            // `gfx942` itself has an x.
            Some((gf, rest)) => match rest.split_once('x') {
                Some((number, count)) => (format!("{gf}x{number}"), count.parse().map_err(|_| wrong())?),
                None => (item.to_owned(), 1),
            },
            None => return Err(wrong()),
        };
        let part = parts::find(&arch).ok_or_else(wrong)?;
        if !(1..=16).contains(&count) {
            return Err(wrong());
        }
        devices.extend(vec![part; count]);
    }
    Ok(devices)
}

/// `512M`: a number, with an optional suffix for a power of 1024.
fn bytes(text: &str) -> Option<u64> {
    let shift = match text.chars().last()? {
        'K' | 'k' => 10,
        'M' | 'm' => 20,
        'G' | 'g' => 30,
        'T' | 't' => 40,
        _ => return text.parse().ok(),
    };
    let number: u64 = text[..text.len() - 1].parse().ok()?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let find = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::from(None, find).map_err(|wrong| wrong.to_string())
    }

    fn archs(settings: &Settings) -> Vec<&str> {
        settings.parts.iter().map(|part| part.arch).collect()
    }

    #[test]
    fn the_default_is_one_mi300x() {
        let settings = read(&[]).unwrap();
        assert_eq!(archs(&settings), ["gfx942"]);
        assert_eq!(settings.schedule, Schedule::Late);
        assert_eq!(settings.faults.launch, None);
    }

    #[test]
    fn devices_are_named_and_counted() {
        let settings = read(&[("HIP_EMU_ARCH", "gfx90ax2,gfx1100"), ("HIP_EMU_MEMORY", "512M")]).unwrap();
        assert_eq!(archs(&settings), ["gfx90a", "gfx90a", "gfx1100"]);
        assert_eq!(settings.memory, 512 << 20);
        let settings = read(&[("HIP_EMU_DEVICES", "2")]).unwrap();
        assert_eq!(archs(&settings), ["gfx942", "gfx942"]);
        let settings = read(&[("HIP_EMU_ARCH", "none")]).unwrap();
        assert!(settings.parts.is_empty());
    }

    #[test]
    fn a_program_sees_the_devices_that_it_is_shown() {
        let seen = |name: &str, list: &str| {
            let all = ("HIP_EMU_ARCH", "gfx90a,gfx942,gfx1100");
            archs(&read(&[all, (name, list)]).unwrap()).join(" ")
        };
        let hip = |list: &str| seen("HIP_VISIBLE_DEVICES", list);
        assert_eq!(hip("2,0"), "gfx1100 gfx90a");
        assert_eq!(hip("1, 7,0"), "gfx942");
        assert_eq!(hip("-1"), "");
        assert_eq!(seen("CUDA_VISIBLE_DEVICES", "1"), "gfx942");
    }

    #[test]
    fn an_invalid_setting_is_reported() {
        for (name, value) in [
            ("HIP_EMU_ARCH", "sm_90"),
            ("HIP_EMU_ARCH", "gfx942x0"),
            ("HIP_EMU_MEMORY", "much"),
            ("HIP_EMU_FAIL_ALLOC", "0"),
            ("HIP_EMU_ORDER", "sideways"),
            ("HIP_EMU_ALIGNMENT", "4"),
            ("HIP_EMU_PROFILE_SAMPLE", "64"),
            ("HIP_EMU_TAINT", "taint.jsonl"),
            ("HIP_EMU_TAINT_MARK", "patch_extract:0:1536:3"),
        ] {
            let message = read(&[(name, value)]).unwrap_err();
            assert!(message.starts_with(&format!("{name}={value}: ")), "{message}");
        }
    }

    #[test]
    fn marked_bytes_are_of_a_kernels_buffer() {
        let settings = |mark| read(&[("HIP_EMU_TAINT", "file"), ("HIP_EMU_TAINT_MARK", mark)]);
        let (path, mark) = settings("patch_extract:1:96:3").unwrap().taint.unwrap();
        assert_eq!(path, PathBuf::from("file"));
        assert_eq!((mark.kernel.as_str(), mark.pointer), ("patch_extract", 1));
        assert_eq!((mark.offset, mark.bytes), (96, 3));
        for text in [
            "patch_extract:1:96",
            "a:1:96:0",
            ":1:96:3",
            "a:1:96:3:4",
            "a:b:96:3",
        ] {
            let message = settings(text).unwrap_err();
            assert!(
                message.starts_with(&format!("HIP_EMU_TAINT_MARK={text}: ")),
                "{message}"
            );
        }
        let both = [
            ("HIP_EMU_TAINT", "file"),
            ("HIP_EMU_TAINT_MARK", "a:0:0:1"),
            ("HIP_EMU_PROFILE", "other"),
        ];
        assert!(read(&both).is_err());
    }
}
