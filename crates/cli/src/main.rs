//! The `hipvit` program. See `hipvit_cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(hipvit_cli::run(std::env::args_os()))
}
