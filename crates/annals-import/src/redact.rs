//! Secrets in texts, found by the well-known forms of keys and tokens.
//!
//! A secret is replaced by its kind: `[redacted: github]`. *Absent:* passwords and keys without a form of their own.

use std::collections::HashMap;
use std::sync::Arc;

use annals_base::{Map, Value};
use annals_messages::{Content, Message, Role};

use crate::model::{SessionMessage, SourceSession};

/// The form of a secret: its first characters, and the number of those that follow.
struct SecretForm {
    kind: &'static str,
    begin: &'static str,
    /// The characters that follow, beside letters and digits.
    marks: &'static str,
    least: usize,
}

const fn form(kind: &'static str, begin: &'static str, marks: &'static str, least: usize) -> SecretForm {
    SecretForm { kind, begin, marks, least }
}

/// The forms. Of two that begin alike the longer begin stands first.
const FORMS: [SecretForm; 34] = [
    form("anthropic", "sk-ant-", "-_", 20),
    form("openrouter", "sk-or-", "-_", 20),
    form("openai", "sk-proj-", "-_", 20),
    form("openai", "sk-svcacct-", "-_", 20),
    form("openai", "sk-", "_", 32),
    form("stripe", "sk_live_", "", 20),
    form("stripe", "sk_test_", "", 20),
    form("stripe", "rk_live_", "", 20),
    form("stripe", "whsec_", "", 20),
    form("github", "github_pat_", "_", 22),
    form("github", "ghp_", "", 36),
    form("github", "gho_", "", 36),
    form("github", "ghu_", "", 36),
    form("github", "ghs_", "", 36),
    form("github", "ghr_", "", 36),
    form("gitlab", "glpat-", "-_", 20),
    form("aws", "AKIA", "", 16),
    form("aws", "ASIA", "", 16),
    form("google", "AIza", "-_", 35),
    form("google", "ya29.", "-_", 20),
    form("slack", "xoxb-", "-", 20),
    form("slack", "xoxp-", "-", 20),
    form("slack", "xoxa-", "-", 20),
    form("slack", "xoxr-", "-", 20),
    form("slack", "xapp-", "-", 20),
    form("huggingface", "hf_", "", 30),
    form("npm", "npm_", "", 36),
    form("pypi", "pypi-", "-_", 50),
    form("sendgrid", "SG.", "-_.", 50),
    form("xai", "xai-", "", 40),
    form("groq", "gsk_", "", 40),
    form("digitalocean", "dop_v1_", "", 64),
    form("jwt", "eyJ", "-_.", 60),
    form("bearer", "Bearer ", "-_.=+/~", 24),
];

/// The frame of a private key.
const KEY_BEGIN: &str = "-----BEGIN ";
const KEY_MARK: &str = "PRIVATE KEY-----";
const KEY_END: &str = "-----END ";

/// Counts the secrets that it replaces.
#[derive(Default)]
pub(crate) struct Redactor {
    pub(crate) count: u64,
}

impl Redactor {
    /// Replaces the secrets of a session. Lines share the messages that they shared.
    pub(crate) fn session(&mut self, session: &mut SourceSession) {
        let mut seen: HashMap<*const SessionMessage, Arc<SessionMessage>> = HashMap::new();
        let lines = session.branches.iter_mut().map(|branch| &mut branch.messages);
        for shared in std::iter::once(&mut session.main).chain(lines).flatten() {
            let redacted = seen.entry(Arc::as_ptr(shared)).or_insert_with(|| self.shared(shared));
            *shared = Arc::clone(redacted);
        }
        session.title = session.title.take().map(|title| self.text(&title).unwrap_or(title));
    }

    /// Returns a message without secrets: the message itself if it has none.
    fn shared(&mut self, shared: &Arc<SessionMessage>) -> Arc<SessionMessage> {
        let before = self.count;
        let mut copy = SessionMessage::clone(shared);
        self.message(&mut copy.message);
        if self.count == before { Arc::clone(shared) } else { Arc::new(copy) }
    }

    fn message(&mut self, message: &mut Message) {
        match &mut message.content {
            Content::Text(text) => self.replace(text),
            Content::Blocks(blocks) => blocks.iter_mut().for_each(|block| self.value(block)),
        }
        if let Role::Ai(ai) = &mut message.role {
            ai.tool_calls.iter_mut().for_each(|call| self.map(&mut call.args));
            ai.invalid_tool_calls.iter_mut().filter_map(|call| call.args.as_mut()).for_each(|args| self.replace(args));
        }
        self.map(&mut message.additional_kwargs);
    }

    fn map(&mut self, map: &mut Map) {
        map.iter_mut().for_each(|(_, value)| self.value(value));
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::Str(text) => {
                if let Some(redacted) = self.text(text) {
                    *value = Value::from(redacted);
                }
            }
            Value::List(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Map(map) => self.map(map),
            _ => {}
        }
    }

    fn replace(&mut self, text: &mut String) {
        if let Some(redacted) = self.text(text) {
            *text = redacted;
        }
    }

    /// Returns a text with its secrets replaced; none if it has none.
    pub(crate) fn text(&mut self, text: &str) -> Option<String> {
        let mut found: Vec<(usize, usize, &'static str)> = keys(text);
        for form in &FORMS {
            found.extend(text.match_indices(form.begin).filter_map(|(at, _)| form.secret(text, at)));
        }
        // Of secrets that overlap the first, and of those the longest, is replaced.
        found.sort_by_key(|(start, end, _)| (*start, std::cmp::Reverse(*end)));
        let (mut redacted, mut done) = (String::new(), 0);
        for (start, end, kind) in found {
            if start < done {
                continue;
            }
            redacted.push_str(&text[done..start]);
            redacted.push_str(&format!("[redacted: {kind}]"));
            self.count += 1;
            done = end;
        }
        redacted.push_str(&text[done..]);
        (done > 0).then_some(redacted)
    }
}

impl SecretForm {
    /// Returns the place of a secret whose first characters stand at a position.
    fn secret(&self, text: &str, at: usize) -> Option<(usize, usize, &'static str)> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if text[..at].ends_with(is_word) {
            return None;
        }
        let from = at + self.begin.len();
        let is_own = |c: char| c.is_ascii_alphanumeric() || self.marks.contains(c);
        let length = text[from..].find(|c| !is_own(c)).unwrap_or(text.len() - from);
        let rest = &text[from..from + length];
        let has_form = match self.kind {
            "aws" => length == self.least && !rest.contains(|c: char| c.is_ascii_lowercase()),
            "jwt" => rest.matches('.').count() == 2,
            _ => true,
        };
        // A word or a placeholder of one letter is no secret.
        let has_digit = rest.contains(|c: char| c.is_ascii_digit());
        // The header stays, so that the text says what was there.
        let start = if self.kind == "bearer" { from } else { at };
        (length >= self.least && has_form && has_digit).then_some((start, from + length, self.kind))
    }
}

/// Returns the places of private keys in their frames.
fn keys(text: &str) -> Vec<(usize, usize, &'static str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(KEY_BEGIN) {
        let line = text[at..].lines().next().unwrap_or("");
        if !line.contains(KEY_MARK) {
            continue;
        }
        let end = text[at..].find(KEY_END).and_then(|end| {
            let rest = &text[at + end..];
            rest.find(KEY_MARK).map(|mark| at + end + mark + KEY_MARK.len())
        });
        // A key that is cut off ends with the text.
        found.push((at, end.unwrap_or(text.len()), "private key"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> (String, u64) {
        let mut redactor = Redactor::default();
        let redacted = redactor.text(text);
        (redacted.unwrap_or_else(|| text.to_owned()), redactor.count)
    }

    #[test]
    fn each_form_is_replaced_by_its_kind() {
        for form in &FORMS {
            let rest = match form.kind {
                "jwt" => format!("{0}.{0}.{0}", "a1".repeat(12)),
                "aws" => "A1".repeat(8),
                _ => "a1".repeat(form.least / 2 + 1),
            };
            let text = format!("key={}{rest}, and more", form.begin);
            let (shown, count) = redacted(&text);
            let kept = if form.kind == "bearer" { form.begin } else { "" };
            assert_eq!((shown, count), (format!("key={kept}[redacted: {}], and more", form.kind), 1), "{text}");
        }
    }

    #[test]
    fn private_keys_are_replaced_whole_and_other_texts_stay() {
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----";
        assert_eq!(
            redacted(&format!("a {key} b {key}")),
            ("a [redacted: private key] b [redacted: private key]".into(), 2)
        );
        assert_eq!(redacted(&key[..40]), ("[redacted: private key]".into(), 1));
        for text in [
            "sk-",
            "task-sk-none",
            "mask-abcdefghijklmnopqrstuvwxyz0123456789",
            "AKIA is a begin",
            "hf_hub_download",
            "-----BEGIN CERTIFICATE-----",
            "xsk-ant-a1a1a1a1a1a1a1a1a1a1a1a1",
            "Ünïcödé sk-ä",
        ] {
            assert_eq!(redacted(text), (text.to_owned(), 0));
        }
    }
}
