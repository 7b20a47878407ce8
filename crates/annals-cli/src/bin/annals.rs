//! The program `annals`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(annals_cli::run_command(std::env::args_os()))
}
