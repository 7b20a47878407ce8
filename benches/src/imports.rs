//! `annals import` of the histories of coding agents, as whole processes into new stores, and the first page after it.
//!
//! A session is a file of a megabyte: turns of a prompt, reasoning, three calls of tools with results of some
//! kilobytes, and an answer, with the records that the programs write beside them. *Absent:* the figures if the command
//! was not built.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use annals::store::Store;
use annals_page::{PageOptions, PageServer};
use serde_json::{Value, json};

use crate::disk::same;
use crate::figures::FigureReport;
use crate::pages;
use crate::stats::{SeededNumbers, timed};
use crate::{Bench, Result};

/// Calls of tools in a turn.
const CALLS: u64 = 3;
/// Bytes of a session, after which no turn is added.
const SESSION_BYTES: u64 = 1_000_000;
/// Words of the texts.
const WORDS: [&str; 24] = [
    "commit",
    "page",
    "the",
    "writer",
    "of",
    "a",
    "log",
    "is",
    "thread",
    "fn",
    "read",
    "before",
    "test",
    "index",
    "and",
    "returns",
    "error",
    "self.store",
    "->",
    "Result<()>",
    "{",
    "}",
    "let",
    "// why",
];

/// Measures the figures of imports.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let annals = std::env::current_exe()?.with_file_name(format!("annals{}", std::env::consts::EXE_SUFFIX));
    if !annals.is_file() {
        eprintln!("annals-bench: the command is not built: cargo build --release -p annals-cli");
        return Ok(());
    }
    let sessions = if bench.quick { 2 } else { 500 };
    let folder = bench.file("sessions")?;
    let codex = folder.join(".codex/sessions/2026/03/02");
    let claude = folder.join(".claude/projects/-srv-project");
    fs::create_dir_all(&codex)?;
    fs::create_dir_all(&claude)?;
    let (mut codex_bytes, mut claude_bytes) = (0, 0);
    for n in 0..sessions {
        let id = uuid(n);
        codex_bytes +=
            SessionFile::new(n, &codex.join(format!("rollout-2026-03-02T08-00-00-{id}.jsonl")))?.codex(&id)?;
        let id = uuid(n + sessions);
        claude_bytes += SessionFile::new(n + sessions, &claude.join(format!("{id}.jsonl")))?.claude_code(&id)?;
    }
    let import = |of: &Path, store: &str, threads: u64| -> Result<(f64, PathBuf)> {
        let store = bench.file(store)?;
        let mut command = Command::new(&annals);
        command.arg("import").arg(of).arg("--store").arg(&store).arg("--json");
        let (us, output) = timed(|| Ok(command.stdin(Stdio::null()).output()?))?;
        same("the exit code of an import", output.status.code(), Some(0))?;
        let summary: Value = serde_json::from_slice(&output.stdout)?;
        same("threads of an import", summary["threads"]["new"].as_u64(), Some(threads))?;
        same("records that were not understood", summary["not_understood"].clone(), json!({}))?;
        Ok((us / 1e6, store))
    };
    let (seconds, _) = import(&codex, "codex.db", sessions)?;
    report.set("import_mb_per_s_codex", codex_bytes as f64 / 1e6 / seconds);
    let (seconds, _) = import(&claude, "claude-code.db", sessions)?;
    report.set("import_mb_per_s_claude_code", claude_bytes as f64 / 1e6 / seconds);
    let (seconds, store) = import(&folder, "both.db", 2 * sessions)?;
    let (us, ()) = timed(|| {
        let server = PageServer::bind(Store::open(&store)?, 0, PageOptions::new().token(pages::TOKEN))?;
        let address = server.address();
        // It answers until the process ends.
        std::thread::spawn(move || server.run());
        pages::request(address, "/").map(drop)
    })?;
    report.set("import_first_page_s_1gb", seconds + us / 1e6);
    Ok(())
}

/// Returns an id with the form of a UUID.
fn uuid(n: u64) -> String {
    let mut dice = SeededNumbers(n + 1);
    format!(
        "{:08x}-{:04x}-7{:03x}-a{:03x}-{:012x}",
        dice.below(1 << 32),
        n & 0xffff,
        dice.below(4096),
        dice.below(4096),
        n
    )
}

/// A session that is written.
struct SessionFile {
    file: BufWriter<File>,
    dice: SeededNumbers,
    bytes: u64,
    /// Records that have a timestamp.
    records: u64,
}

impl SessionFile {
    fn new(n: u64, path: &Path) -> Result<Self> {
        Ok(Self { file: BufWriter::new(File::create(path)?), dice: SeededNumbers(n), bytes: 0, records: 0 })
    }

    fn line(&mut self, record: &Value) -> Result<()> {
        let text = record.to_string();
        self.bytes += text.len() as u64 + 1;
        Ok(writeln!(self.file, "{text}")?)
    }

    /// Returns a text of some words in lines.
    fn text(&mut self, words: u64) -> String {
        let mut text = String::new();
        for n in 1..=words {
            text.push_str(WORDS[self.dice.below(WORDS.len() as u64) as usize]);
            text.push(if n.is_multiple_of(12) { '\n' } else { ' ' });
        }
        format!("{text}{}", self.dice.below(1 << 40))
    }

    /// Returns a result of a tool.
    fn output(&mut self) -> String {
        let words = 200 + self.dice.below(900);
        self.text(words)
    }

    fn time(&mut self) -> String {
        self.records += 1;
        let (minute, rest) = (self.records / 60_000, self.records % 60_000);
        format!("2026-03-02T{:02}:{:02}:{:02}.{:03}Z", 8 + minute / 60, minute % 60, rest / 1_000, rest % 1_000)
    }

    /// Writes a rollout of Codex. Returns its bytes.
    fn codex(mut self, id: &str) -> Result<u64> {
        let record = |of: &mut Self, kind: &str, payload: Value| {
            let at = of.time();
            of.line(&json!({ "timestamp": at, "type": kind, "payload": payload }))
        };
        let head = json!({ "id": id, "timestamp": "2026-03-02T08:00:00.000Z", "cwd": "/srv/project",
            "originator": "codex_cli_rs", "cli_version": "0.98.0", "source": "cli", "model_provider": "openai" });
        record(&mut self, "session_meta", head)?;
        while self.bytes < SESSION_BYTES {
            let said = self.text(40);
            let item =
                json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": said }] });
            record(&mut self, "response_item", item)?;
            record(&mut self, "event_msg", json!({ "type": "user_message", "message": said, "images": [] }))?;
            for _ in 0..CALLS {
                let (thought, call) = (self.text(30), format!("call_{:016x}", self.dice.below(u64::MAX)));
                let item = json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": thought }],
                    "encrypted_content": "gAAAA".repeat(100) });
                record(&mut self, "response_item", item)?;
                record(&mut self, "event_msg", json!({ "type": "agent_reasoning", "text": thought }))?;
                let arguments = json!({ "command": ["bash", "-lc", self.text(12)], "workdir": "." }).to_string();
                let item = json!({ "type": "function_call", "name": "shell", "arguments": arguments, "call_id": call });
                record(&mut self, "response_item", item)?;
                let output = self.output();
                let item = json!({ "type": "function_call_output", "call_id": call, "output": output });
                record(&mut self, "response_item", item)?;
                let used = json!({ "input_tokens": 9_391, "cached_input_tokens": 6_799, "output_tokens": 631,
                    "reasoning_output_tokens": 0, "total_tokens": 10_022 });
                let info =
                    json!({ "total_token_usage": used, "last_token_usage": used, "model_context_window": 272_000 });
                record(&mut self, "event_msg", json!({ "type": "token_count", "info": info, "rate_limits": null }))?;
            }
            let answer = self.text(150);
            let content = json!([{ "type": "output_text", "text": answer }]);
            let item = json!({ "type": "message", "role": "assistant", "content": content });
            record(&mut self, "response_item", item)?;
            record(&mut self, "event_msg", json!({ "type": "agent_message", "message": answer }))?;
        }
        self.file.flush()?;
        Ok(self.bytes)
    }

    /// Writes a transcript of Claude Code. Returns its bytes.
    fn claude_code(mut self, id: &str) -> Result<u64> {
        let (mut parent, mut number) = (Value::Null, 0_u64);
        let mut record = |of: &mut Self, kind: &str, message: Value, result: Option<Value>| {
            number += 1;
            let uuid = format!("{}{number:08x}", &id[..28]);
            let mut record = json!({ "parentUuid": parent, "isSidechain": false, "userType": "external",
                "cwd": "/srv/project", "sessionId": id, "version": "2.1.40", "gitBranch": "main", "type": kind,
                "message": message, "uuid": uuid, "timestamp": of.time() });
            if let Some(result) = result {
                record["toolUseResult"] = result;
            }
            parent = uuid.into();
            of.line(&record)
        };
        let mut answers = 0_u64;
        let mut answer = |content: Value, stop: &str| {
            answers += 1;
            json!({ "model": "claude-sonnet-4-5-20250929", "id": format!("msg_{answers:020}"), "type": "message",
                "role": "assistant", "content": [content], "stop_reason": stop, "stop_sequence": null,
                "usage": { "input_tokens": 1_388, "cache_creation_input_tokens": 239, "cache_read_input_tokens": 0,
                    "output_tokens": 182, "service_tier": "standard" } })
        };
        while self.bytes < SESSION_BYTES {
            let said = self.text(40);
            record(&mut self, "user", json!({ "role": "user", "content": said }), None)?;
            for _ in 0..CALLS {
                let thinking = json!({ "type": "thinking", "thinking": self.text(30), "signature": "Er4j".repeat(60) });
                record(&mut self, "assistant", answer(thinking, "tool_use"), None)?;
                let call = format!("toolu_{:016x}", self.dice.below(u64::MAX));
                let input = json!({ "command": self.text(12), "description": "look" });
                let used = json!({ "type": "tool_use", "id": call, "name": "Bash", "input": input });
                record(&mut self, "assistant", answer(used, "tool_use"), None)?;
                let output = self.output();
                let content = json!([{ "tool_use_id": call, "type": "tool_result", "content": output }]);
                let result = json!({ "stdout": output, "stderr": "", "interrupted": false });
                record(&mut self, "user", json!({ "role": "user", "content": content }), Some(result))?;
            }
            let text = json!({ "type": "text", "text": self.text(150) });
            record(&mut self, "assistant", answer(text, "end_turn"), None)?;
        }
        self.file.flush()?;
        Ok(self.bytes)
    }
}
