//! The command line: arguments in, library calls, text out.

#![allow(unreachable_pub)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
