//! The processes of a session. They find each other, and must load the same model with the same options.

use std::time::Duration;
use std::{fmt, fs};

use super::SessionBuilder;
use crate::error::{Error, Result};
use crate::exec::Processes;
use crate::graph::Graph;
use crate::hip::{self, Rendezvous, World};
use crate::model::Model;
use crate::session::devices::Places;
use crate::session::{Degrees, Origin, Session};
use crate::timeline::{self, Activity};

/// Facts that must be equal in all processes, by name.
type Identity = Vec<(String, String)>;

impl SessionBuilder {
    /// Divides the model among the processes that a launcher has started, with [`Parallelism::tensor`](crate::Parallelism::tensor). Each
    /// process has one GPU, by default that of [`Device::of_process`](crate::Device::of_process). All processes must load the model at the
    /// same time, with the same options. Rank 0 then runs images, and the others [follow](Session::follow) it. A `world` of one process has
    /// no effect.
    ///
    /// Across processes RCCL computes every all-reduce, also with [`AllReduceKind::Auto`](crate::AllReduceKind::Auto).
    /// [`AllReduceKind::Direct`](crate::AllReduceKind::Direct) is an error.
    ///
    /// ```no_run
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::hip::World;
    /// use hipvit::image::{Limits, open};
    /// use hipvit::{Parallelism, Session};
    ///
    /// // Started as by `torchrun --nproc-per-node 2 --no-python target/release/program`.
    /// let mut builder = Session::builder().parallel(Parallelism::tensor());
    /// if let Some(world) = World::from_env()? {
    ///     builder = builder.world(world);
    /// }
    /// let session = builder.load("path/to/vit_large_patch16_224")?;
    /// if session.world().is_some_and(|world| world.rank() > 0) {
    ///     return session.follow();
    /// }
    /// let outputs = session.run([open("photo.jpg", Limits::default())?])?;
    /// println!("{}", outputs.image(0).top(1)[0].label);
    /// # Ok(()) }
    /// ```
    pub fn world(mut self, world: World) -> Self {
        self.world = Some(world);
        self
    }

    /// Sets the maximum time that the processes of a [`world`](Self::world) wait for each other when they load the model, 300 s by default.
    pub fn rendezvous_timeout(mut self, timeout: Duration) -> Self {
        self.rendezvous_timeout = timeout;
        self
    }

    /// Opens the devices, reads the model and builds a session. With several processes, waits until all have read the model.
    pub(super) fn read(&self, origin: Origin, read: impl FnOnce() -> Result<Model>) -> Result<Session> {
        let opened = self.open().and_then(|places| {
            let _reading = timeline::span(Activity::ReadModel);
            Ok((read()?, places))
        });
        let Some(world) = self.processes() else {
            let (model, places) = opened?;
            if self.auto_dtype.is_on {
                drop(places);
                return self.build_fastest(&model, &origin);
            }
            return self.build(model, origin, places, None);
        };
        let own = match &opened {
            Ok((model, places)) => Ok((self.identity(model, places), places.first())),
            Err(error) => Err(error),
        };
        let met = meet(world.clone(), self.rendezvous_timeout, own);
        // The error of this process is more informative than that of the exchange.
        let (model, places) = opened?;
        self.build(model, origin, places, Some(met?))
    }

    /// Returns the processes if there are several.
    pub(super) fn processes(&self) -> Option<&World> {
        self.world.as_ref().filter(|world| world.size() > 1)
    }

    /// Returns the facts that must be equal in all processes.
    fn identity(&self, model: &Model, places: &Places) -> Vec<(String, String)> {
        let float8 = self
            .degrees(places)
            .map(|degrees| self.float8(&model.graph, places, &degrees));
        let facts: [(&str, &dyn fmt::Debug); 8] = [
            ("version", &env!("CARGO_PKG_VERSION")),
            ("dtype", &self.dtype),
            ("batch", &self.batch),
            ("parallelism", &self.parallelism),
            ("HIP graphs", &self.hip_graphs),
            ("selection", &self.select),
            ("outputs and image size", &self.load),
            ("passes", &(self.passes(), float8.ok())),
        ];
        let fact = |(name, value): (&str, &dyn fmt::Debug)| (name.to_owned(), format!("{value:?}"));
        let mut all: Vec<_> = facts.into_iter().map(fact).collect();
        all.insert(0, ("model".to_owned(), digest(&model.name, &model.graph)));
        all
    }

    /// Returns how the processes share the work. `gpus` are the GPUs of this process.
    pub(super) fn degrees_across(&self, world: &World, gpus: &[hip::Device]) -> Result<Degrees> {
        if gpus.len() != 1 {
            let reason = format!(
                "a process of several has one GPU, and this one {}; by default it is that of its local rank",
                gpus.len()
            );
            return Err(Error::argument("devices", reason));
        }
        let degrees = self.parallelism.degrees(world.size())?;
        if degrees.data > 1 || degrees.pipeline > 1 {
            let reason = format!(
                "{} processes can divide a model by tensor parallelism alone (tensor), not by {}",
                world.size(),
                self.parallelism
            );
            return Err(Error::argument("parallel", reason));
        }
        Ok(degrees)
    }
}

/// Waits for all processes for at most `timeout`, and compares what they load. `own` has the facts and the GPU of this process.
///
/// # Errors
///
/// - [`Error::Argument`], at all ranks, naming the first difference from rank 0.
/// - [`Error::Rank`] if another process could not read the model.
/// - [`Error::Hip`] if a process does not arrive.
fn meet(
    world: World,
    timeout: Duration,
    own: Result<(Identity, Option<&hip::Device>), &Error>,
) -> Result<Processes> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let gpu = match &own {
        Ok((_, Some(gpu))) => gpu.name(),
        _ => "no GPU",
    };
    let name = format!("{gpu} of {}", host.trim());
    let encode = |(identity, _)| serde_json::to_vec(&identity).map_err(|error| error.to_string());
    let own = own.map_err(Error::to_string).and_then(encode);
    let (processes, told) = Processes::meet(Rendezvous::new(world, timeout)?, name, own)?;
    let decode = |bytes: &Vec<u8>| serde_json::from_slice::<Identity>(bytes);
    let told = told.iter().map(decode).collect::<Result<Vec<_>, _>>();
    compare(&told.map_err(|error| Error::argument("processes", error))?)?;
    Ok(processes)
}

/// Checks that the facts of all ranks equal those of rank 0.
fn compare(told: &[Identity]) -> Result<()> {
    let Some((first, others)) = told.split_first() else {
        return Ok(());
    };
    for (rank, other) in others.iter().enumerate() {
        let mut pairs = first.iter().zip(other);
        if let Some(((name, expected), (_, other))) = pairs.find(|(expected, other)| expected != other) {
            let rank = rank + 1;
            let reason = format!(
                "rank 0 and rank {rank} differ in {name}: {expected} and {other}; all have to load the same model with the same options"
            );
            return Err(Error::argument("processes", reason));
        }
    }
    Ok(())
}

/// Returns a digest of a model: its name, its nodes, and all bytes of its weights.
fn digest(name: &str, graph: &Graph) -> String {
    let mut hash = crc32fast::Hasher::new();
    for node in graph.nodes() {
        hash.update(format!("{node:?}").as_bytes());
    }
    for value in graph.values() {
        if let Some(tensor) = &value.constant {
            hash.update(format!("{} {} {:?}", value.name, tensor.dtype(), tensor.shape()).as_bytes());
            hash.update(&tensor.to_le_bytes());
        }
    }
    format!("{name} (checksum {:08x})", hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LoadOptions, tinyvit32};

    fn identity(dtype: &str, batch: &str) -> Identity {
        [("dtype", dtype), ("batch", batch)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn the_first_difference_from_rank_0_is_named() {
        let same = identity("F32", "8");
        assert!(compare(&[same.clone(), same.clone(), same.clone()]).is_ok());
        let other = identity("F32", "4");
        let error = compare(&[same.clone(), same, other])
            .err()
            .map(|error| error.to_string());
        let expected = "processes: rank 0 and rank 2 differ in batch: 8 and 4; all have to load the same model with the same options";
        assert_eq!(error.as_deref(), Some(expected));
    }

    #[test]
    fn a_digest_tells_models_of_one_name_apart() -> Result<()> {
        let of = |image_size| -> Result<String> {
            let options = LoadOptions {
                image_size,
                ..LoadOptions::default()
            };
            Ok(digest("tinyvit32", &tinyvit32(&options)?.graph))
        };
        assert_eq!(of(None)?, of(None)?);
        // Another image size changes the position embeddings.
        assert_ne!(of(None)?, of(Some([64, 64]))?);
        Ok(())
    }
}
