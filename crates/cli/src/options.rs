//! Help and parsing that all commands share: headings, completion of devices, options that a command does not
//! support, and environment variables as defaults.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, Parser};
use clap_complete::engine::ArgValueCandidates;
use hipvit::run_config::parsers;

use super::environment::{self, Variable};
use super::{device_names, inputs};

/// Headings in the order of the help. Other headings come before the last two.
const HEADINGS: [&str; 4] = ["Input", "Model", "Texts", "Device"];
const LAST_HEADINGS: [&str; 2] = ["Output", "Advanced"];

/// Commands that run on one device, not on a set of GPUs.
const ONE_DEVICE: [&str; 5] = ["advise", "inspect", "quantize", "train", "validate"];

/// Session options that have no effect in a command.
static UNUSED: [(&str, &[&str]); 11] = [
    (
        "advise",
        &[
            "all_reduce",
            "collective_timeout",
            "hip_graphs",
            "max_flops",
            "packed",
            "parallel",
            "reproducible",
            "resize",
            "sparse",
            "strict",
        ],
    ),
    ("bench", &["packed", "resize"]),
    ("depth", &["packed", "resize"]),
    ("detect", &["packed", "resize"]),
    ("explain", &["packed", "resize"]),
    (
        "inspect",
        &[
            "all_reduce",
            "collective_timeout",
            "hip_graphs",
            "max_flops",
            "packed",
            "resize",
            "strict",
            "threads",
        ],
    ),
    ("probe", &["packed", "resize"]),
    (
        "run",
        &["crop_pct", "image_size", "mean", "packed", "resize", "std"],
    ),
    ("segment", &["image_size", "packed", "resize"]),
    ("trace", &["packed", "resize"]),
    ("tune", &["packed", "resize"]),
];

fn unused(command: &str) -> &'static [&'static str] {
    let found = UNUSED.iter().find(|(name, _)| *name == command);
    found.map_or(&[], |(_, options)| *options)
}

/// Returns the definition of the command line `C`.
pub(crate) fn command<C: CommandFactory>() -> Command {
    let command = C::command().mut_subcommands(|mut command| {
        let name = command.get_name().to_owned();
        for id in unused(&name) {
            command = command.mut_arg(id, |arg| arg.hide(true));
        }
        let has_device = command
            .get_arguments()
            .any(|argument| argument.get_id() == "device");
        if has_device {
            let takes_one = ONE_DEVICE.contains(&name.as_str());
            command = command.mut_arg("device", |arg| {
                let arg = if ["advise", "inspect"].contains(&name.as_str()) {
                    arg.value_parser(parsers::one_device())
                } else {
                    arg
                };
                arg.add(if takes_one {
                    ArgValueCandidates::new(device_names::devices)
                } else {
                    ArgValueCandidates::new(device_names::device_sets)
                })
            });
        }
        command
    });
    environment::add_to_help(command).mut_subcommands(in_order)
}

/// Sorts the arguments by heading, because clap shows headings in the order of their first arguments.
fn in_order(mut command: Command) -> Command {
    let rank = |heading: Option<&str>| match heading {
        None => 0,
        Some(heading) => {
            let is = |other: &&str| *other == heading;
            let first = HEADINGS.iter().position(is).map(|index| 1 + index);
            let last = LAST_HEADINGS.iter().position(is);
            let last = last.map(|index| 2 + HEADINGS.len() + index);
            first.or(last).unwrap_or(1 + HEADINGS.len())
        }
    };
    let arguments = command.get_arguments();
    let mut ids: Vec<_> = arguments
        .map(|argument| (rank(argument.get_help_heading()), argument.get_id().clone()))
        .collect();
    ids.sort_by_key(|(rank, _)| *rank);
    // `mut_arg` moves the argument to the end.
    for (_, id) in ids {
        command = command.mut_arg(id.as_str(), |arg| arg);
    }
    command
}

/// Rejects session options that have no effect in the command.
///
/// # Errors
///
/// Returns [`ErrorKind::UnknownArgument`] with the option.
pub(crate) fn refuse_unused(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((name, matches)) = matches.subcommand() else {
        return Ok(());
    };
    let given = |id: &&&str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let Some(id) = unused(name).iter().find(given) else {
        return Ok(());
    };
    let option = format!("--{}", id.replace('_', "-"));
    let mut error = clap::Error::new(ErrorKind::UnknownArgument);
    if let Some(command) = command.find_subcommand(name) {
        error = error.with_cmd(command);
    }
    error.insert(ContextKind::InvalidArg, ContextValue::String(option));
    Err(error)
}

/// Parses the command line, with the environment variables as defaults. The first argument is the program's name.
///
/// A variable is ignored if the command line has its option or an argument that replaces the option. So a variable
/// never conflicts with an argument. An empty variable counts as unset.
///
/// # Errors
///
/// Returns an error if the command line or the value of a variable is invalid. A note on standard error names the
/// variable.
pub(crate) fn parse<C: Parser>(mut arguments: Vec<OsString>) -> Result<C, clap::Error> {
    let mut command = command::<C>();
    let mut matches = command.clone().try_get_matches_from(&arguments)?;
    refuse_unused(&mut command, &matches)?;
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
                    environment::print_origin(variable, value);
                }
            })?;
        environment::record_applied(defaults);
    }
    C::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Returns the variables that apply to the command and are not overridden by the command line, with their values.
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
        has(id) && matches.value_source(id) == Some(ValueSource::CommandLine) && !is_image(matches, id)
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
    environment::VARIABLES
        .iter()
        .filter(applies)
        .filter_map(value)
        .collect()
}

/// Returns true if the first argument of `profile` is an image, not a model.
fn is_image(matches: &ArgMatches, id: &str) -> bool {
    let path = matches.try_get_one::<PathBuf>(id).ok().flatten();
    path.is_some_and(|path| path == Path::new("-") || inputs::is_image(path))
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn command() -> Command {
        super::command::<crate::Cli>()
    }

    /// Calls `check` for each command that has its own help.
    fn for_each_command(check: impl Fn(&str, Command)) {
        let mut command = command();
        command.build();
        let listed = command
            .get_subcommands()
            .filter(|command| command.get_name() != "help");
        for command in listed {
            check(command.get_name(), command.clone());
        }
    }

    #[test]
    fn short_help_fits_a_screen() {
        for_each_command(|name, command| {
            let help = command.term_width(100).render_help().to_string();
            assert!(
                help.lines().count() <= 50,
                "{name}: {}\n{help}",
                help.lines().count()
            );
        });
    }

    #[test]
    fn an_option_is_described_in_at_most_12_words() {
        for_each_command(|name, command| {
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                let described = help.split('[').next().unwrap_or_default();
                let words = described.split_whitespace().count();
                assert!((1..=12).contains(&words), "{name} {}: {help}", argument.get_id());
            }
        });
    }

    #[test]
    fn options_have_headings_in_an_order() {
        for_each_command(|name, command| {
            let heading = |argument: &Arg| argument.get_help_heading().map(str::to_owned);
            // Global options are appended, and shown under their heading.
            let own = command
                .get_arguments()
                .filter(|argument| !argument.is_global_set());
            let mut headings: Vec<_> = own.filter_map(heading).collect();
            headings.dedup();
            let mut once = headings.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), headings.len(), "{name}: {headings:?}");
            let without = command
                .get_opts()
                .filter(|argument| argument.get_help_heading().is_none());
            assert_eq!(without.count(), 0, "{name}");
        });
    }

    #[test]
    fn values_are_described() {
        for_each_command(|name, command| {
            for argument in command.get_opts() {
                for value in argument.get_possible_values() {
                    let is_flag = !argument.get_action().takes_values();
                    // clap lists the colours; ops and sizes are names.
                    let is_name = ["color", "config", "op"].contains(&argument.get_id().as_str());
                    let is_described = is_flag || is_name || value.get_help().is_some();
                    assert!(is_described, "{name} {}: {}", argument.get_id(), value.get_name());
                }
            }
        });
    }

    #[test]
    fn options_without_use_are_refused() {
        let refused = |arguments: &[&str]| {
            let mut command = command();
            let matches = command.clone().try_get_matches_from(arguments).unwrap();
            refuse_unused(&mut command, &matches).map_err(|error| error.to_string())
        };
        let error = refused(&["hipvit", "inspect", "--hip-graphs", "off"]).unwrap_err();
        assert!(error.contains("unexpected argument '--hip-graphs'"), "{error}");
        refused(&["hipvit", "inspect", "--sparse", "off"]).unwrap();
    }

    #[test]
    fn former_names_are_still_taken() {
        for arguments in [
            &["bench", "--batch", "1,8"][..],
            &["profile", "--batches", "3"],
            &["serve", "--max-batch", "4"],
            &["embed", "--layer", "1"],
            &["classify", "--sparse", "own"],
            &["quantize", "model", "-o", "out"],
        ] {
            // The `serve` feature can be disabled.
            if command().find_subcommand(arguments[0]).is_some() {
                let arguments = [&["hipvit"], arguments].concat();
                assert!(
                    command().try_get_matches_from(&arguments).is_ok(),
                    "{arguments:?}"
                );
            }
        }
    }

    #[test]
    fn every_command_has_the_options_of_its_variables() {
        let command = command();
        for variable in &environment::VARIABLES {
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

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }
}
