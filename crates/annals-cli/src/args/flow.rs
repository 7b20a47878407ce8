//! The arguments of the verbs about workflow files.

use std::path::PathBuf;

const RUN_EXAMPLES: &str = "\
Examples:
  annals run checks.toml
  annals run checks.toml --thread monday --input '{\"folder\": \"docs\"}'
  annals run deploy.toml --answer true          resumes its first open interrupt

A run that was killed or failed continues when the same command is repeated. A run that has ended is
shown again; --again starts it anew. The exit code is 0 at the end, 1 if the run waits for --answer,
70 if a node failed. docs/flows.md describes the file.";

#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The workflow, as TOML or JSON; without --store, its store stands beside it as NAME.db
    pub(crate) file: PathBuf,
    /// The thread of the run [default: the name of the workflow]
    #[arg(long, value_name = "ID")]
    pub(crate) thread: Option<String>,
    /// Values of channels for a run that starts: a JSON object, or @FILE
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// The resume value of the first open interrupt: JSON, or any other text
    #[arg(long, value_name = "JSON", conflicts_with = "input")]
    pub(crate) answer: Option<String>,
    /// Start a run that has ended once more, on the state of its thread
    #[arg(long)]
    pub(crate) again: bool,
}

/// The formats of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DrawingFormat {
    Mermaid,
    Dot,
    Svg,
    Text,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GraphArgs {
    /// The workflow, as TOML or JSON
    pub(crate) file: PathBuf,
    /// mermaid, dot, svg or text
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = DrawingFormat::Mermaid)]
    pub(crate) format: DrawingFormat,
    /// Unfold N levels of workflows in the workflow
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) depth: usize,
}
