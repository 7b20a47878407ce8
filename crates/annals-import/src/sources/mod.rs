//! The programs whose histories are read: one module each, and the table of them.
//!
//! A program is added by a module with `FACTS` and a [`HistorySource`], and a line of the table.

mod adk;
mod aider;
mod chat;
mod claude;
mod cline;
mod codex;
mod continue_dev;
mod copilot;
mod cursor;
mod facts;
mod gemini;
mod goose;
mod hermes;
mod openai_agents;
mod opencode;
mod pi;
mod qwen;
mod zed;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::error::ImportError;
use crate::output::ReadOutput;
use crate::probe::{FileProbe, SourceFile};
pub use facts::{PlaceBase, SourceFacts, SourcePlace, sources_table};

/// Reads the histories of one program: takes the files that it recognises, and reads them when all are known.
pub(crate) trait HistorySource {
    /// Takes a folder that is read as a whole: no other program looks at its files.
    fn recognise_folder(&mut self, _folder: &Path) -> bool {
        false
    }

    /// Returns whether a file belongs to the program and is no history itself, such as a list of titles: it is neither
    /// a thread nor counted.
    fn is_beside(&mut self, _file: &SourceFile) -> bool {
        false
    }

    /// Takes a file if the program wrote it.
    fn recognise(&mut self, file: &FileProbe) -> bool;

    /// Reads what was taken, parents before their children.
    fn read(self: Box<Self>, out: &mut ReadOutput<'_>) -> Result<(), ImportError>;
}

/// Declares the table of programs, in the order in which they are tried.
macro_rules! sources {
    ($($(#[$doc:meta])* $kind:ident: $module:ident::$reader:ident, $name:literal;)*) => {
        /// A program whose histories can be read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum SourceKind {
            $($(#[$doc])* $kind,)*
        }

        impl SourceKind {
            /// All of them, in the order in which they are tried.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// Returns the name, such as `claude-code`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// Returns where its histories lie, which versions were seen, and what an import loses.
            pub fn facts(self) -> &'static SourceFacts {
                match self {
                    $(Self::$kind => &$module::FACTS,)*
                }
            }

            /// Returns a reader without files.
            pub(crate) fn reader(self) -> Box<dyn HistorySource> {
                match self {
                    $(Self::$kind => Box::<$module::$reader>::default(),)*
                }
            }
        }
    };
}

sources! {
    /// Rollouts of Codex: `sessions/YYYY/MM/DD/rollout-*.jsonl`.
    Codex: codex::CodexFiles, "codex";
    /// Transcripts of Claude Code: `projects/*/*.jsonl`.
    ClaudeCode: claude::ClaudeFiles, "claude-code";
    /// `sessions.db` of goose, and the JSON lines before it.
    Goose: goose::GooseFiles, "goose";
    /// `opencode.db` of opencode, and the folder `storage` before it.
    Opencode: opencode::OpencodeFiles, "opencode";
    /// `threads.db` of Zed.
    Zed: zed::ZedFiles, "zed";
    /// `state.vscdb` of Cursor, and the transcripts of its command.
    Cursor: cursor::CursorFiles, "cursor";
    /// Events of the command of GitHub Copilot: `session-state/*/events.jsonl`.
    Copilot: copilot::CopilotFiles, "copilot";
    /// Sessions of pi, omp and OpenClaw.
    Pi: pi::PiFiles, "pi";
    /// Transcripts of Qwen Code: `projects/*/chats/*.jsonl`.
    Qwen: qwen::QwenFiles, "qwen";
    /// Journals of Gemini CLI: `tmp/*/chats/session-*.jsonl`, and the documents before them.
    Gemini: gemini::GeminiFiles, "gemini";
    /// `.aider.chat.history.md` of Aider.
    Aider: aider::AiderFiles, "aider";
    /// Tasks of Cline and Roo Code, and the sessions of Cline's command.
    Cline: cline::ClineFiles, "cline";
    /// `state.db` of Hermes.
    Hermes: hermes::HermesFiles, "hermes";
    /// Databases of Google's Agent Development Kit.
    Adk: adk::AdkFiles, "adk";
    /// Databases of the Agents SDK of OpenAI.
    OpenaiAgents: openai_agents::AgentsFiles, "openai-agents";
    /// Sessions of Continue: `sessions/*.json`.
    Continue: continue_dev::ContinueFiles, "continue";
    /// Chats of other programs: the export of ChatGPT, role and content lines, ShareGPT.
    Chat: chat::ChatFiles, "chat";
}

/// Shows the name.
impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads a name.
impl FromStr for SourceKind {
    type Err = ImportError;

    fn from_str(text: &str) -> Result<Self, ImportError> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| ImportError::UnknownSource { name: text.chars().take(64).collect() })
    }
}

/// Returns the names of all programs, separated by commas.
pub(crate) fn names() -> String {
    SourceKind::ALL.map(SourceKind::name).join(", ")
}
