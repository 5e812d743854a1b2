//! Division of a session's work among several GPUs.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Division of a session's work among its GPUs.
///
/// - *data*: each GPU, or each group of GPUs, has the whole model. Whole batches go to a free GPU or group.
/// - *tensor*: the weights of each layer are split over the GPUs of a group.
/// - *pipeline*: consecutive layers are on consecutive GPUs or groups.
///
/// The number of GPUs is the product of the three degrees. One degree may be left open, and is then the number of GPUs divided by the
/// others. By default this is data, and the others are 1.
///
/// As text: `data`, `tensor`, `pipeline`, or degrees as in `tensor=2,data=2` or `tensor=2,pipeline=2`. A kind without a number is left
/// open. If all kinds have numbers and data is not named, data is left open.
///
/// ```
/// # fn main() -> hipvit::Result<()> {
/// use hipvit::Parallelism;
///
/// let hybrid: Parallelism = "tensor=2".parse()?;
/// let degrees = hybrid.degrees(8)?;
/// assert_eq!((degrees.data, degrees.tensor, degrees.pipeline), (4, 2, 1));
/// assert!(hybrid.degrees(3).is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// `None` if left open. At most one degree is.
    data: Option<usize>,
    tensor: Option<usize>,
    pipeline: Option<usize>,
}

/// Degrees of a [`Parallelism`] for a number of GPUs, which is their product.
///
/// The GPUs of a session are ordered by replica, then by pipeline stage, then by tensor-parallel rank. GPUs that communicate most are
/// therefore neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Degrees {
    /// Number of replicas.
    pub data: usize,
    /// Number of GPUs that each layer is split over.
    pub tensor: usize,
    /// Number of pipeline stages.
    pub pipeline: usize,
}

impl Default for Parallelism {
    fn default() -> Self {
        Self::data()
    }
}

impl Parallelism {
    /// Puts a replica of the model on each GPU.
    #[must_use]
    pub const fn data() -> Self {
        Self::of(None, Some(1), Some(1))
    }

    /// Splits each layer over all GPUs.
    #[must_use]
    pub const fn tensor() -> Self {
        Self::of(Some(1), None, Some(1))
    }

    /// Divides the layers among all GPUs.
    #[must_use]
    pub const fn pipeline() -> Self {
        Self::of(Some(1), Some(1), None)
    }

    /// Sets all three degrees.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if a degree is 0.
    pub fn new(data: usize, tensor: usize, pipeline: usize) -> Result<Self> {
        if [data, tensor, pipeline].contains(&0) {
            return Err(Error::argument("parallel", "a degree is at least 1"));
        }
        Ok(Self::of(Some(data), Some(tensor), Some(pipeline)))
    }

    const fn of(data: Option<usize>, tensor: Option<usize>, pipeline: Option<usize>) -> Self {
        Self {
            data,
            tensor,
            pipeline,
        }
    }

    /// Returns true if each GPU has the whole model.
    #[must_use]
    pub fn is_data(self) -> bool {
        self.tensor == Some(1) && self.pipeline == Some(1)
    }

    /// Returns the degrees with the fewest GPUs.
    #[must_use]
    pub fn least(self) -> Degrees {
        let [data, tensor, pipeline] =
            [self.data, self.tensor, self.pipeline].map(|degree| degree.unwrap_or(1));
        Degrees {
            data,
            tensor,
            pipeline,
        }
    }

    /// Returns the degrees for `devices` GPUs.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `devices` cannot be their product.
    pub fn degrees(self, devices: usize) -> Result<Degrees> {
        let kinds = [self.data, self.tensor, self.pipeline];
        let product = kinds
            .iter()
            .flatten()
            .try_fold(1usize, |all, &n| all.checked_mul(n));
        let rest = product
            .and_then(|product| devices.checked_div(product))
            .unwrap_or(0);
        let [data, tensor, pipeline] = kinds.map(|degree| degree.unwrap_or(rest));
        let taken = data.checked_mul(tensor).and_then(|n| n.checked_mul(pipeline));
        if devices == 0 || taken != Some(devices) {
            let multiple = if kinds.contains(&None) {
                "a multiple of "
            } else {
                ""
            };
            let wanted = product.map_or_else(|| "too many".into(), |n| n.to_string());
            let s = if devices == 1 { "" } else { "s" };
            let reason =
                format!("{self} takes {multiple}{wanted} GPUs, and the session has {devices} device{s}");
            return Err(Error::argument("parallel", reason));
        }
        Ok(Degrees {
            data,
            tensor,
            pipeline,
        })
    }
}

impl Degrees {
    /// Returns the number of GPUs of each replica.
    #[must_use]
    pub fn shards(self) -> usize {
        self.tensor * self.pipeline
    }

    /// Returns the indices of replica `replica`'s devices.
    #[must_use]
    pub fn devices(self, replica: usize) -> Range<usize> {
        replica * self.shards()..(replica + 1) * self.shards()
    }
}

impl FromStr for Parallelism {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |reason: String| Error::argument("parallel", format!("`{text}`: {reason}"));
        // A degree, or `Some(None)` if it is left open.
        let mut named: [Option<Option<usize>>; 3] = [None; 3];
        for part in text.split(',') {
            let (kind, number) = match part.split_once('=') {
                Some((kind, number)) => (kind, Some(number)),
                None => (part, None),
            };
            let index = match kind {
                "data" => 0,
                "tensor" => 1,
                "pipeline" => 2,
                _ => {
                    let reason = format!("`{kind}` is not one of data, tensor, pipeline");
                    return Err(wrong(reason));
                }
            };
            let degree = match number.map(str::parse) {
                None => None,
                Some(Ok(degree @ 1..)) => Some(degree),
                Some(_) => return Err(wrong(format!("`{part}`: a degree is a number from 1"))),
            };
            if named[index].replace(degree).is_some() {
                return Err(wrong(format!("{kind} is named twice")));
            }
        }
        let open = named.iter().filter(|degree| **degree == Some(None)).count();
        if open > 1 {
            return Err(wrong("only one kind can go without a number".into()));
        }
        let [data, tensor, pipeline] = named;
        let data = data.unwrap_or(if open == 0 { None } else { Some(1) });
        Ok(Self::of(
            data,
            tensor.unwrap_or(Some(1)),
            pipeline.unwrap_or(Some(1)),
        ))
    }
}

impl fmt::Display for Parallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            ("data", self.data),
            ("tensor", self.tensor),
            ("pipeline", self.pipeline),
        ];
        let parts = kinds.iter().filter_map(|(kind, degree)| match degree {
            None => Some((*kind).to_owned()),
            Some(1) => None,
            Some(degree) => Some(format!("{kind}={degree}")),
        });
        let parts: Vec<String> = parts.collect();
        f.pad(&if parts.is_empty() {
            "data=1".to_owned()
        } else {
            parts.join(",")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degrees(text: &str, devices: usize) -> Option<(usize, usize, usize)> {
        let parallelism: Parallelism = text.parse().ok()?;
        // The formatted text parses to the same value.
        assert_eq!(
            parallelism.to_string().parse::<Parallelism>().ok(),
            Some(parallelism),
            "{text}"
        );
        let Degrees {
            data,
            tensor,
            pipeline,
        } = parallelism.degrees(devices).ok()?;
        Some((data, tensor, pipeline))
    }

    #[test]
    fn degrees_fit_the_devices() {
        for (text, devices, expected) in [
            ("data", 4, (4, 1, 1)),
            ("data", 1, (1, 1, 1)),
            ("tensor", 4, (1, 4, 1)),
            ("pipeline", 3, (1, 1, 3)),
            ("tensor=2", 4, (2, 2, 1)),
            ("tensor=2,data=2", 4, (2, 2, 1)),
            ("data=2,tensor", 8, (2, 4, 1)),
            ("pipeline=2,tensor=2", 8, (2, 2, 2)),
            ("pipeline,tensor=2", 8, (1, 2, 4)),
            ("tensor=1", 2, (2, 1, 1)),
        ] {
            assert_eq!(degrees(text, devices), Some(expected), "{text} on {devices}");
        }
        for (text, devices) in [
            ("data=2", 4),
            ("tensor=2", 3),
            ("tensor=2,data=2", 2),
            ("tensor=4", 2),
            ("data", 0),
        ] {
            assert_eq!(degrees(text, devices), None, "{text} on {devices}");
        }
    }

    #[test]
    fn wrong_text_is_an_error() {
        for wrong in [
            "",
            "expert",
            "tensor=",
            "tensor=0",
            "tensor=x",
            "tensor,data",
            "data,data",
            "tensor=2,tensor=2",
            "data=1,",
        ] {
            assert!(wrong.parse::<Parallelism>().is_err(), "{wrong}");
        }
        assert!(Parallelism::new(1, 0, 1).is_err());
        let huge: Result<Parallelism> = format!("tensor={0},data={0}", usize::MAX).parse();
        assert!(huge.and_then(|huge| huge.degrees(1)).is_err());
    }

    #[test]
    fn a_replica_has_neighbouring_devices() -> Result<()> {
        let degrees = "data=2,tensor=2,pipeline=2".parse::<Parallelism>()?.degrees(8)?;
        assert_eq!((degrees.devices(0), degrees.devices(1)), (0..4, 4..8));
        Ok(())
    }
}
