//! `annals completions` and `annals man`: texts that are generated from the arguments of the command.

use std::path::Path;

use clap::CommandFactory as _;

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::errors::CommandFailure;
use crate::output::{self, Printer, count};

pub(crate) fn completions(args: &CompletionsArgs, out: &mut Printer) -> Result<u8, CommandFailure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "annals", &mut script);
    out.script(&script)?;
    Ok(0)
}

pub(crate) fn man(args: &ManArgs, out: &mut Printer) -> Result<u8, CommandFailure> {
    let command = Args::command();
    let Some(folder) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        out.script(&page)?;
        return Ok(0);
    };
    let pages = pages(command, folder)?;
    output::note(format!("{} in {}", count(pages, "page"), folder.display()));
    Ok(0)
}

/// Writes the page of the command, and one for each verb, as `annals-log.1`.
fn pages(command: clap::Command, folder: &Path) -> Result<usize, CommandFailure> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)?;
    Ok(std::fs::read_dir(folder)?.count())
}
