//! The research workflow: its state, its nodes, and how they are tied together.
//!
//! `list` sends every file to `read`; when all were read, `analyse` compares them, `draft` writes the report and the
//! conversation about it, `approve` asks a person, and `finish` closes.

use std::path::Path;

use annals::message::ToolCall;
use annals_graph::graph::{Own, Target};
use annals_graph::prelude::*;

use super::files::{self, FileRef, TextFile};
use super::report::{self, Analysis};
use super::text::{self, Facts};

/// The number of terms of each file in the report.
pub(crate) const TOP_TERMS: u32 = 8;

/// The state of a research run.
#[derive(State, Clone, Debug, Default)]
pub(crate) struct Research {
    /// The conversation about the report.
    #[channel(messages)]
    pub(crate) messages: Messages,
    /// The folder, absolute.
    #[channel(last)]
    pub(crate) folder: String,
    /// The number of terms of each file in the report.
    #[channel(last)]
    pub(crate) top_terms: u32,
    /// The files that were found.
    #[channel(last)]
    pub(crate) files: Vec<TextFile>,
    /// The facts of the files that were read, one item for each file.
    #[channel(append)]
    pub(crate) notes: List<Facts>,
    #[channel(last)]
    pub(crate) analysis: Analysis,
    #[channel(last)]
    pub(crate) report: String,
    #[channel(last)]
    pub(crate) approved: Option<bool>,
    /// `approved` or `rejected`, once the run has ended.
    #[channel(last)]
    pub(crate) status: String,
    /// The words of the report.
    #[channel(last)]
    pub(crate) report_words: usize,
}

/// Returns the graph.
pub(crate) fn graph() -> annals_graph::Result<CompiledGraph<Research>> {
    let graph = StateGraph::<Research>::new()
        .name("research")
        .node("list", list)
        .node("read", Own(|file: FileRef, _: &Context| Ok(Research::update().notes([read(&file)]))))
        .node("analyse", |research: &Research| Ok(Research::update().analysis(report::analyse(research.notes.iter()))))
        .node("draft", draft)
        .node("approve", approve)
        .node("finish", finish)
        .edge(START, "list")
        .branch("list", send_each)
        .edge("read", "analyse")
        .edge("analyse", "draft")
        .edge("draft", "approve")
        .edge("approve", "finish")
        .edge("finish", END)
        .compile()?;
    Ok(graph)
}

fn list(research: &Research) -> NodeResult<ResearchUpdate> {
    Ok(Research::update().files(files::list(Path::new(&research.folder))?))
}

fn send_each(research: &Research) -> NodeResult<Vec<Target>> {
    let send = |file: &TextFile| {
        let file = FileRef { folder: research.folder.clone(), file: file.clone() };
        Ok(Target::from(SendTo::with("read", &file)?))
    };
    match &*research.files {
        // They were there when the run was started.
        [] => Ok(vec!["analyse".into()]),
        files => files.iter().map(send).collect(),
    }
}

/// Reads a file. One that cannot be read is a finding, not a failure of the run.
fn read(file: &FileRef) -> Facts {
    let folder = Path::new(&file.folder);
    match std::fs::read(folder.join(&file.file.path)) {
        Ok(bytes) => text::facts(&file.file.path, &bytes, folder),
        Err(error) => text::skipped(&file.file.path, &error.to_string()),
    }
}

fn draft(research: &Research) -> NodeResult<ResearchUpdate> {
    let (name, analysis) = (folder_name(&research.folder), &research.analysis);
    let report = report::draft(&name, analysis, research.top_terms as usize);
    let call = ToolCall::new("figures", [("folder", name.as_str())]).with_id("figures");
    let figures = format!(
        "{{\"files\": {}, \"words\": {}, \"headings\": {}, \"links\": {}, \"broken\": {}, \"repeated\": {}}}",
        analysis.read,
        analysis.words,
        analysis.headings,
        analysis.links,
        analysis.broken.len(),
        analysis.repeated.len()
    );
    let telling = analysis.files.iter().max_by_key(|file| file.words);
    let longest = telling.map(|file| {
        let terms = file.terms.iter().take(research.top_terms as usize).cloned().collect::<Vec<_>>();
        format!(" The longest is {}, about {}.", file.path, terms.join(", "))
    });
    let answer = format!("There are {}.{}", analysis.summary(), longest.unwrap_or_default());
    // Given ids: a second draft replaces the first conversation, message by message.
    let messages = [
        Message::human(format!("What is in {name}, and what needs attention?")).with_id("question"),
        Message::ai("").with_id("look-up").with_tool_call(call),
        Message::tool(figures, "figures").with_id("figures"),
        Message::ai(answer).with_id("answer"),
    ];
    Ok(Research::update().report(report).messages(messages))
}

fn approve(research: &Research, context: &Context) -> NodeResult<ResearchUpdate> {
    let request = format!("Publish the report? {}", research.analysis.summary());
    let resumed = context.interrupt(request)?;
    let yes = resumed.as_bool().unwrap_or_else(|| resumed.as_str().is_some_and(is_yes));
    Ok(Research::update().approved(Some(yes)))
}

/// Returns whether a text means yes.
pub(crate) fn is_yes(text: &str) -> bool {
    matches!(text.trim().to_lowercase().as_str(), "y" | "yes")
}

fn finish(research: &Research) -> NodeResult<ResearchUpdate> {
    let status = if research.approved == Some(true) { "approved" } else { "rejected" };
    Ok(Research::update().status(status).report_words(research.report.split_whitespace().count()))
}

/// Returns the last part of a path.
pub(crate) fn folder_name(folder: &str) -> String {
    let name = Path::new(folder).file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "root".into())
}
