//! The program `hipvit`; see `hipvit::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(hipvit::cli::run(std::env::args_os()))
}
