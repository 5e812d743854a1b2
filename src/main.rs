//! The program `hipvit`; see `cli`.

#![allow(unreachable_pub)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
