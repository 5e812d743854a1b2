//! Arguments that select and load a model, and the notes on a loaded session.

use std::path::PathBuf;
use std::time::Duration;

use hipvit::hip::World;
use hipvit::model::{self, LoadOptions, Model};
use hipvit::run_config::Devices;
use hipvit::{RunConfig, Session, SessionBuilder};

use super::outcome::Followed;
use super::output;

/// Options that select the model and the device.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ModelArgs {
    /// Model directory, or ORG/NAME on the hub [default: TinyViT32]
    ///
    /// The directory has the layout of timm or transformers. A model on the hub is downloaded first; ORG/NAME@REVISION
    /// selects a revision.
    #[arg(long, short, value_name = "MODEL", help_heading = "Model")]
    pub(crate) model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) config: RunConfig,
}

/// A model that is given as an argument or an option.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NamedModel {
    /// Model directory, or ORG/NAME on the hub [default: TinyViT32]
    ///
    /// The directory has the layout of timm or transformers. A model on the hub is downloaded first; ORG/NAME@REVISION
    /// selects a revision.
    #[arg(value_name = "MODEL", help_heading = "Model")]
    pub(crate) positional: Option<PathBuf>,
    /// Same as the MODEL argument
    #[arg(
        long,
        short,
        value_name = "MODEL",
        conflicts_with = "positional",
        help_heading = "Model",
        hide_short_help = true
    )]
    pub(crate) model: Option<PathBuf>,
}

impl NamedModel {
    /// Returns the model's directory or name; `None` for the embedded model.
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        self.model.as_ref().or(self.positional.as_ref())
    }

    /// Returns the model together with a session's options.
    pub(crate) fn with(&self, config: &RunConfig) -> ModelArgs {
        ModelArgs {
            model: self.path().cloned(),
            config: config.clone(),
        }
    }
}

/// [`ModelArgs`] for commands that run images.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The processes that share the model's work, and their rendezvous timeout.
    #[arg(skip)]
    pub(crate) across: Option<(World, Duration)>,
}

impl RunArgs {
    /// Loads the model. If several processes divide it, every rank but the first follows rank 0 and returns
    /// [`Followed`].
    pub(crate) fn load_with(&self, builder: SessionBuilder) -> anyhow::Result<Session> {
        let session = self.model.load_with(match &self.across {
            Some((world, timeout)) => builder.world(world.clone()).rendezvous_timeout(*timeout),
            None => builder,
        })?;
        session.check_takes_images()?;
        if session.world().is_some_and(|world| world.rank() > 0) {
            session.follow()?;
            return Err(Followed.into());
        }
        Ok(session)
    }

    pub(crate) fn builder(&self) -> SessionBuilder {
        self.model.builder()
    }

    /// Returns true if several processes divide the model, and false if they share the images instead.
    pub(crate) fn is_divided(&self) -> bool {
        let RunConfig {
            device, execution, ..
        } = &self.model.config;
        let is_one = |devices: &Devices| devices.set().device().is_some();
        !execution.parallel.is_data() && device.as_ref().is_none_or(is_one)
    }

    /// Returns true if the model is the embedded one.
    pub(crate) fn is_embedded(&self) -> bool {
        self.model.model.is_none()
    }

    /// Prints a note that the embedded model only recognises digits, if no model was named.
    pub(crate) fn note_embedded(&self) {
        if self.is_embedded() {
            output::note(
                "no model is given: using TinyViT32, which only recognises handwritten digits. Select another with -m DIR or -m ORG/NAME",
            );
        }
    }
}

/// Loads the model at `path`, or the embedded model, without creating a session.
pub(crate) fn load_model(path: Option<&PathBuf>, options: &LoadOptions) -> hipvit::Result<Model> {
    match path {
        Some(path) => model::load(path, options),
        None => model::tinyvit32(options),
    }
}

impl ModelArgs {
    pub(crate) fn load(&self) -> hipvit::Result<Session> {
        self.load_with(self.builder())
    }

    pub(crate) fn load_with(&self, builder: SessionBuilder) -> hipvit::Result<Session> {
        let session = match &self.model {
            Some(path) => builder.load(path),
            None => builder.tinyvit32(),
        }?;
        self.note(&session);
        Ok(session)
    }

    /// Loads the model with the arguments, and returns it with notes on standard error.
    pub(crate) fn load_by(
        &self,
        load: impl FnOnce(SessionBuilder) -> hipvit::Result<Session>,
    ) -> hipvit::Result<Session> {
        let session = load(self.builder())?;
        self.note(&session);
        Ok(session)
    }

    /// Prints the notes and warnings about a loaded session.
    pub(crate) fn note(&self, session: &Session) {
        if let Some(hipvit::Error::Hip(reason)) = session.no_gpu() {
            note_no_gpu(reason, self.config.device.is_some());
        }
        warn_non_finite_weights(session);
        note_measured_dtypes(session);
        if let Some(reason) = session.hip_graphs().and_then(|runs| runs.no_direct) {
            output::warning(&format!(
                "using RCCL for all-reduces, whose rounding may differ, because peer memory failed: {reason}"
            ));
        }
    }

    pub(crate) fn builder(&self) -> SessionBuilder {
        self.config.builder()
    }
}

/// Prints what `--dtype auto` has measured.
fn note_measured_dtypes(session: &Session) {
    let measured = session.measured_dtypes();
    if measured.is_empty() {
        return;
    }
    let rows = measured.iter().map(|row| {
        let (dtype, ms) = (row.dtype, row.time.as_secs_f64() * 1e3);
        let refused = if row.is_accurate() { "" } else { " (too low)" };
        format!("{dtype} {ms:.2} ms, cosine {:.6}{refused}", row.cosine)
    });
    let rows: Vec<String> = rows.collect();
    let batch = session.batch();
    output::note(&format!(
        "using {}; a batch of {batch} takes: {}",
        session.dtype(),
        rows.join("; ")
    ));
}

/// Prints a note on why the model runs on the CPU. Prints nothing on a machine without GPU libraries if neither a
/// device nor a provider was named.
pub(crate) fn note_no_gpu(reason: &hipvit::hip::Error, device_requested: bool) {
    let provider_requested = std::env::var_os("HIPVIT_PROVIDER").is_some_and(|value| !value.is_empty());
    let no_libraries = matches!(reason, hipvit::hip::Error::Provider { .. });
    if device_requested || provider_requested || !no_libraries {
        output::note(&format!("running on the CPU: {reason}"));
    }
}

/// Warns about each weight that has NaN or infinite values.
pub(crate) fn warn_non_finite_weights(session: &Session) {
    for tensor in session.non_finite_weights() {
        output::warning(&format!("{}: tensor {tensor}", session.name()));
    }
}

/// Warns if HIP graphs were requested and not replayed.
pub(crate) fn report_fallback(session: &Session) {
    let fallback = session.hip_graphs().and_then(|graphs| graphs.fallback);
    warn_fallback(fallback.as_deref());
}

/// Warns that HIP graphs are not replayed, if `reason` is given.
pub(crate) fn warn_fallback(reason: Option<&str>) {
    if let Some(reason) = reason {
        output::warning(&format!(
            "HIP graphs are not replayed; steps are launched one by one: {reason}"
        ));
    }
}
