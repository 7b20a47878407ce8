//! The arguments of `export` and `import`.

use std::path::PathBuf;
use std::sync::Arc;

use annals::message::{LangChainFormat, MessageFormat, OpenAiFormat};
use annals_import::SourceKind;
use annals_pydantic_ai::PydanticAiFormat;

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// THREAD[@POINT]
    #[arg(required_unless_present = "all")]
    pub(crate) point: Option<String>,
    /// All threads: as pages with --site, of imported histories as one document with --format turns-json, or with --to
    /// langgraph-sqlite or langgraph-json
    #[arg(long, conflicts_with_all = ["point", "lines", "channel", "damaged"])]
    pub(crate) all: bool,
    /// Format of each message: langchain (also json, and jsonl with lines), openai or pydantic-ai; markdown or html
    /// for a transcript; thread for the whole thread as a store file, which import takes back; langgraph-sqlite for a
    /// database that LangGraph continues, langgraph-json for its checkpoints; otlp-json for the runs, steps and model
    /// calls of a thread as spans of OpenTelemetry; with --all: turns-json
    #[arg(long, visible_alias = "to", value_name = "FORMAT", value_parser = export_format, default_value = "langchain")]
    pub(crate) format: ExportFormat,
    /// Write one JSON object per line in place of a JSON list
    #[arg(long)]
    pub(crate) lines: bool,
    /// Channel of the messages [default: the first channel that holds messages]
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// Write a placeholder for each message that cannot be read, and go on
    #[arg(long)]
    pub(crate) damaged: bool,
    /// Write to a new file and print a report
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write an HTML page for each thread, and an index by day and project, into a folder that a browser reads without
    /// a server; repeated, it brings the folder up to date and touches no file of another program
    #[arg(long, value_name = "FOLDER", requires = "all", conflicts_with_all = ["point", "format", "out"])]
    pub(crate) site: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = programs())]
pub(crate) struct ImportArgs {
    /// File or folder with histories of another program, or a store file with one thread; with --name a file
    /// (-: stdin) with a JSON list of messages, an object with such a list as "messages", or JSON objects in sequence
    /// [default: the histories on this machine]
    #[arg(required_if_eq("from", "langgraph"))]
    pub(crate) file: Option<PathBuf>,
    /// Program of the histories, of those below; langgraph for a database of its SQLite saver [default: recognised by
    /// the content]
    #[arg(long, value_name = "KIND", conflicts_with = "name", value_parser = import_source)]
    pub(crate) from: Option<ImportSource>,
    /// Do not ask before the histories on this machine are imported
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Go on, and import what changes in the files
    #[arg(long, conflicts_with = "name")]
    pub(crate) watch: bool,
    /// Replace keys and tokens of well-known forms in histories, and print how many
    #[arg(long, conflicts_with = "name")]
    pub(crate) redact: bool,
    /// Id of the new thread for a file of messages
    #[arg(long, value_name = "NEW", requires = "file")]
    pub(crate) name: Option<String>,
    /// Format of each message: langchain, openai or pydantic-ai
    #[arg(long, value_name = "FORMAT", value_parser = message_format, default_value = "langchain", requires = "name")]
    pub(crate) format: Arc<dyn MessageFormat>,
    /// Channel of the messages
    #[arg(long, value_name = "NAME", default_value = "messages", requires = "name")]
    pub(crate) channel: String,
    /// Read one JSON object per line, also if the first line is a list
    #[arg(long, requires = "name")]
    pub(crate) lines: bool,
    /// Skip lines that cannot be read, and report them
    #[arg(long, requires = "name")]
    pub(crate) lenient: bool,
}

impl ImportArgs {
    /// Returns the program of the histories, if it is named.
    pub(crate) fn histories(&self) -> Option<SourceKind> {
        match self.from {
            Some(ImportSource::Histories(source)) => Some(source),
            Some(ImportSource::LangGraph) | None => None,
        }
    }

    /// Returns whether an option is given that only histories have.
    pub(crate) fn is_of_histories(&self) -> bool {
        self.watch || self.redact
    }
}

/// Returns the programs whose histories are read, with the places where they are looked for.
fn programs() -> String {
    let mut text = "Programs whose histories are read:".to_owned();
    for kind in SourceKind::ALL {
        let facts = kind.facts();
        let place = facts.places.first().map_or_else(|| "anywhere".to_owned(), ToString::to_string);
        text.push_str(&format!("\n  {:<13} {} ({place})", kind.name(), facts.programs));
    }
    text
}

/// The program that wrote what is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImportSource {
    /// A program with histories of conversations.
    Histories(SourceKind),
    /// LangGraph's SQLite saver.
    LangGraph,
}

/// Returns the program with a name.
fn import_source(name: &str) -> Result<ImportSource, String> {
    match name {
        "langgraph" => Ok(ImportSource::LangGraph),
        name => match name.parse() {
            Ok(kind) => Ok(ImportSource::Histories(kind)),
            Err(error) => Err(format!("{error}, and langgraph")),
        },
    }
}

/// The form in which LangGraph's checkpoints are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LangGraphForm {
    /// A database of its SQLite saver.
    Sqlite,
    /// One JSON document.
    Json,
}

/// The format of an export.
#[derive(Clone, Debug)]
pub(crate) enum ExportFormat {
    /// The messages of one thread, each in this format.
    Messages(Arc<dyn MessageFormat>),
    /// The messages as lines of JSON.
    Lines,
    /// The messages as a document for people.
    Transcript(TranscriptFormat),
    /// The whole thread as a store file.
    Thread,
    /// All imported threads with their turns and branches.
    Turns,
    /// The checkpoints as LangGraph has them.
    LangGraph(LangGraphForm),
    /// The runs, steps and model calls as spans of OpenTelemetry.
    Otlp,
}

/// The format of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TranscriptFormat {
    Markdown,
    Html,
}

/// Returns the export format with a name.
fn export_format(name: &str) -> Result<ExportFormat, String> {
    match name {
        "turns-json" => Ok(ExportFormat::Turns),
        "thread" => Ok(ExportFormat::Thread),
        "otlp-json" => Ok(ExportFormat::Otlp),
        "langgraph-sqlite" => Ok(ExportFormat::LangGraph(LangGraphForm::Sqlite)),
        "langgraph-json" => Ok(ExportFormat::LangGraph(LangGraphForm::Json)),
        "json" => Ok(ExportFormat::Messages(Arc::new(LangChainFormat))),
        "jsonl" => Ok(ExportFormat::Lines),
        "markdown" => Ok(ExportFormat::Transcript(TranscriptFormat::Markdown)),
        "html" => Ok(ExportFormat::Transcript(TranscriptFormat::Html)),
        name => message_format(name).map(ExportFormat::Messages).map_err(|error| {
            format!(
                "{error}, json, jsonl, markdown, html, thread, turns-json, langgraph-sqlite, \
                 langgraph-json, otlp-json"
            )
        }),
    }
}

/// Returns the message format with a name.
fn message_format(name: &str) -> Result<Arc<dyn MessageFormat>, String> {
    let formats: [Arc<dyn MessageFormat>; 3] =
        [Arc::new(LangChainFormat), Arc::new(OpenAiFormat), Arc::new(PydanticAiFormat)];
    let known = formats.each_ref().map(|format| format.name()).join(", ");
    let found = formats.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| format!("unknown message format {name:?}; known formats: {known}"))
}
