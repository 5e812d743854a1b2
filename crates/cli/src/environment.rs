//! Lists all environment variables, and applies those that set defaults of options.
//!
//! The command line takes precedence: its options and arguments override variables, and never conflict with them. An
//! empty variable counts as unset.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches};

use super::{Cli, Outcome, inputs, options, output};

/// A variable that sets the default of an option.
struct Variable {
    name: &'static str,
    /// Long name of the option.
    option: &'static str,
    /// Commands that have the option.
    commands: &'static [&'static str],
    /// Arguments that override the variable, in addition to the option.
    overridden_by: &'static [&'static str],
}

static VARIABLES: [Variable; 3] = [
    Variable {
        name: "HIPVIT_MODEL",
        option: "model",
        commands: &[
            "advise",
            "bench",
            "classify",
            "embed",
            "eval",
            "explain",
            "inspect",
            "preprocess",
            "profile",
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
            "advise", "bench", "classify", "embed", "eval", "explain", "profile", "serve", "trace", "tune",
            "validate",
        ],
        overridden_by: &["gpu"],
    },
    Variable {
        name: "HIPVIT_DTYPE",
        option: "dtype",
        commands: &[
            "advise", "bench", "classify", "embed", "eval", "explain", "inspect", "profile", "serve",
            "trace", "tune",
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
            ("HIPVIT_ROCTX", "Emit ranges for profilers: 1 always, 0 never"),
        ],
    ),
    (
        "Caches",
        &[(
            "HIPVIT_CACHE_DIR",
            "Cache of kernels and tuning results [default: ~/.cache/hipvit]",
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
pub fn table() -> String {
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
pub fn print() -> anyhow::Result<Outcome> {
    output::stdout().write_all(table().as_bytes())?;
    Ok(Outcome::Complete)
}

/// Variables that this command applied, with their values.
static APPLIED: OnceLock<Vec<(&'static Variable, OsString)>> = OnceLock::new();

/// Parses the command line. Variables are defaults of its options. The first argument is the program's name.
///
/// # Errors
///
/// Returns an error if the command line or the value of a variable is invalid. For a variable, prints a note with its
/// name to standard error.
pub fn parse(mut arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut command = options::command();
    let mut matches = command.clone().try_get_matches_from(&arguments)?;
    options::refuse_unused(&mut command, &matches)?;
    let defaults = defaults(&command, &matches);
    let subcommand = matches.subcommand_name();
    // Global options can precede the subcommand's name.
    let at = arguments
        .iter()
        .skip(1)
        .position(|argument| argument.to_str() == subcommand);
    if let Some(at) = at.filter(|_| !defaults.is_empty()) {
        let options = defaults.iter().map(|(variable, value)| {
            // Join option and value, because a value can begin with a dash.
            let mut argument = OsString::from(format!("--{}=", variable.option));
            argument.push(value);
            argument
        });
        arguments.splice(at + 2..at + 2, options.collect::<Vec<_>>());
        matches = command
            .clone()
            .try_get_matches_from(&arguments)
            .inspect_err(|_| {
                for (variable, value) in &defaults {
                    print_origin(variable, value);
                }
            })?;
        let _ = APPLIED.set(defaults);
    }
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Prints a note for each variable whose option or value `error` mentions. `is_gpu_error` is true if the GPU or its
/// libraries reported the error. Then it also prints a note for `HIPVIT_DEVICE`.
pub fn print_origins(error: &str, is_gpu_error: bool) {
    for (variable, value) in APPLIED.get().into_iter().flatten() {
        let is_named = error.contains(variable.option) || error.contains(&*value.to_string_lossy());
        if is_named || (is_gpu_error && variable.option == "device") {
            print_origin(variable, value);
        }
    }
}

/// Prints the origin of an option's value.
fn print_origin(variable: &Variable, value: &OsStr) {
    let Variable { name, option, .. } = variable;
    output::note(&format!("--{option} comes from {name}={}", value.display()));
}

/// Appends `[env: NAME]` to the help of each option that a variable sets.
pub fn add_to_help(command: Command) -> Command {
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

/// Returns the values of the variables that apply to the command and that the command line does not override.
fn defaults(command: &Command, matches: &ArgMatches) -> Vec<(&'static Variable, OsString)> {
    let Some((name, matches)) = matches.subcommand() else {
        return Vec::new();
    };
    let has = |id: &str| {
        let mut arguments = command
            .find_subcommand(name)
            .into_iter()
            .flat_map(Command::get_arguments);
        arguments.any(|argument| argument.get_id() == id)
    };
    let given = |id: &str| {
        has(id)
            && matches.value_source(id) == Some(ValueSource::CommandLine)
            && !is_image_argument(matches, id)
    };
    let applies = |variable: &&Variable| {
        variable.commands.contains(&name)
            && !given(variable.option)
            && !variable.overridden_by.iter().any(|id| given(id))
    };
    let value = |variable: &'static Variable| {
        let value = env::var_os(variable.name).filter(|value| !value.is_empty())?;
        Some((variable, value))
    };
    VARIABLES.iter().filter(applies).filter_map(value).collect()
}

/// Returns true if the argument `id` is an image. `profile` accepts an image in place of its first argument, the model.
fn is_image_argument(matches: &ArgMatches, id: &str) -> bool {
    let path = matches.try_get_one::<PathBuf>(id).ok().flatten();
    path.is_some_and(|path| path == Path::new("-") || inputs::is_image(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_options_that_variables_set() {
        let command = options::command();
        for variable in &VARIABLES {
            for name in variable.commands {
                // Features such as `serve` can be disabled.
                let Some(command) = command.find_subcommand(name) else {
                    continue;
                };
                let option = command
                    .get_opts()
                    .find(|option| option.get_long() == Some(variable.option));
                assert!(
                    option.is_some_and(|option| option.get_id() == variable.option),
                    "{name}"
                );
            }
        }
    }
}
