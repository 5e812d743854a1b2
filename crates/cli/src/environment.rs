//! Environment variables: the list of all of them, their help, and notes on those that set an option.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::sync::OnceLock;

use clap::Command;

use super::outcome::Outcome;
use super::output;

/// A variable that sets the default of an option.
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    /// Long name of the option.
    pub(crate) option: &'static str,
    /// Commands that have the option.
    pub(crate) commands: &'static [&'static str],
    /// Arguments that override the variable, in addition to the option.
    pub(crate) overridden_by: &'static [&'static str],
}

pub(crate) static VARIABLES: [Variable; 3] = [
    Variable {
        name: "HIPVIT_MODEL",
        option: "model",
        commands: &[
            "advise",
            "bench",
            "classify",
            "depth",
            "detect",
            "embed",
            "eval",
            "explain",
            "inspect",
            "preprocess",
            "probe",
            "profile",
            "segment",
            "serve",
            "trace",
            "tune",
        ],
        overridden_by: &["positional", "models", "repository"],
    },
    Variable {
        name: "HIPVIT_DEVICE",
        option: "device",
        commands: &[
            "advise", "bench", "classify", "depth", "detect", "embed", "eval", "explain", "probe", "profile",
            "run", "segment", "serve", "trace", "train", "tune", "validate",
        ],
        overridden_by: &["gpu"],
    },
    Variable {
        name: "HIPVIT_DTYPE",
        option: "dtype",
        commands: &[
            "advise", "bench", "classify", "depth", "detect", "embed", "eval", "explain", "inspect", "probe",
            "profile", "run", "segment", "serve", "trace", "train", "tune",
        ],
        overridden_by: &[],
    },
];

/// Variables that set no option, grouped by purpose, with their descriptions.
static OTHERS: [(&str, &[(&str, &str)]); 5] = [
    (
        "GPU libraries",
        &[
            (
                "HIPVIT_PROVIDER",
                "rocm, cuda, emu:gfx942, or the path of a library",
            ),
            ("ROCM_PATH, HIP_PATH", "Installation directory of ROCm"),
            ("HIP_VISIBLE_DEVICES", "GPUs that are visible to this process"),
            (
                "HIPVIT_UNIFIED_MEMORY",
                "Access host memory without copies: 1 always, 0 never",
            ),
            ("HIPVIT_ROCTX", "Emit ranges for profilers: 1 always, 0 never"),
        ],
    ),
    (
        "Caches",
        &[(
            "HIPVIT_CACHE_DIR",
            if cfg!(windows) {
                r"Cache of kernels and tuning results [default: %LOCALAPPDATA%\hipvit]"
            } else {
                "Cache of kernels and tuning results [default: ~/.cache/hipvit]"
            },
        )],
    ),
    (
        "Hugging Face hub",
        &[
            (
                "HF_HUB_CACHE, HF_HOME",
                "Cache of models [default: ~/.cache/huggingface]",
            ),
            ("HF_TOKEN", "Token for private and gated models"),
            ("HF_ENDPOINT", "Mirror of the hub"),
            (
                "HTTPS_PROXY, SSL_CERT_FILE",
                "Proxy and certificates of downloads",
            ),
        ],
    ),
    (
        "Several processes",
        &[
            (
                "RANK, WORLD_SIZE, LOCAL_RANK",
                "Rank of this process, set by a launcher",
            ),
            ("MASTER_ADDR, MASTER_PORT", "Address of rank 0"),
            ("HIPVIT_RENDEZVOUS_SECRET", "Shared secret of the processes"),
        ],
    ),
    (
        "Terminal and traces",
        &[
            (
                "NO_COLOR, CLICOLOR_FORCE",
                "Disable colours, or force them without a terminal",
            ),
            ("COLUMNS", "Width of tables and help"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "Default of --otlp-endpoint"),
        ],
    ),
];

/// Returns the table of all variables.
pub(crate) fn table() -> String {
    let defaults = VARIABLES
        .iter()
        .map(|variable| (variable.name, format!("Default of --{}", variable.option)));
    let mut groups = vec![("Defaults of options", defaults.collect::<Vec<_>>())];
    for (purpose, variables) in OTHERS {
        let variables = variables
            .iter()
            .map(|&(name, meaning)| (name, meaning.to_owned()));
        groups.push((purpose, variables.collect()));
    }
    let groups = groups.iter().map(|(purpose, variables)| {
        let lines = variables
            .iter()
            .map(|(name, meaning)| format!("  {name:<28}  {meaning}\n"));
        format!("{purpose}:\n{}", lines.collect::<String>())
    });
    groups.collect::<Vec<_>>().join("\n")
}

/// Prints the table of all variables.
pub(crate) fn print() -> anyhow::Result<Outcome> {
    output::stdout().write_all(table().as_bytes())?;
    Ok(Outcome::Complete)
}

/// Variables that this command applied, with their values.
static APPLIED: OnceLock<Vec<(&'static Variable, OsString)>> = OnceLock::new();

/// Records the variables that this command applied, for [`print_origins`].
pub(crate) fn record_applied(variables: Vec<(&'static Variable, OsString)>) {
    let _ = APPLIED.set(variables);
}

/// Prints a note for each variable whose option or value `error` mentions. `is_gpu_error` is true if the GPU or its
/// libraries reported the error. Then it also prints a note for `HIPVIT_DEVICE`.
pub(crate) fn print_origins(error: &str, is_gpu_error: bool) {
    for (variable, value) in APPLIED.get().into_iter().flatten() {
        let is_named = error.contains(variable.option) || error.contains(&*value.to_string_lossy());
        if is_named || (is_gpu_error && variable.option == "device") {
            print_origin(variable, value);
        }
    }
}

/// Prints the origin of an option's value.
pub(crate) fn print_origin(variable: &Variable, value: &OsStr) {
    let Variable { name, option, .. } = variable;
    output::note(&format!("--{option} comes from {name}={}", value.display()));
}

/// Appends `[env: NAME]` to the help of each option that a variable sets.
pub(crate) fn add_to_help(command: Command) -> Command {
    command.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        let applicable = VARIABLES
            .iter()
            .filter(|variable| variable.commands.contains(&name.as_str()));
        applicable.fold(command, |command, variable| {
            command.mut_arg(variable.option, |arg| {
                let with = |help: String| format!("{help} [env: {}]", variable.name);
                let short = with(arg.get_help().map(ToString::to_string).unwrap_or_default());
                let long = arg.get_long_help().map(|help| with(help.to_string()));
                let arg = arg.help(short);
                match long {
                    Some(long) => arg.long_help(long),
                    None => arg,
                }
            })
        })
    })
}
