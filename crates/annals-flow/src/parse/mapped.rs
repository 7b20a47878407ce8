//! Reads what a node maps, the parameters of the workflow that it calls, and secrets.

use std::path::Path;

use super::{FlowParser, member};
use crate::limits::{EACH_ITEMS_MAX, PARALLEL_MAX};
use crate::spec::{Filled, FlowSpec, ItemList, SECRETS};
use crate::tree::{FileMember, FileValue, ValueKind};

/// Variables of a command that a member of a matrix must not replace.
const RESERVED: &[&str] = &["ITEM", "PATH", "HOME"];

impl FlowParser<'_> {
    /// Reads `each` or `matrix`, and `parallel`.
    pub(super) fn items(&mut self, members: &[&FileMember]) -> (Option<ItemList>, usize) {
        let get = |key| member(members, key);
        let items = match (get("each"), get("matrix")) {
            (Some(each), None) => self.expression(each).map(ItemList::Each),
            (None, Some(matrix)) => Some(ItemList::Matrix(self.matrix(matrix))),
            (Some(_), Some(matrix)) => {
                let hint = "a matrix of one list has the items of that list, as objects";
                self.reader.problem(&matrix.span, "the node has `each` too", Some(hint.into()));
                None
            }
            (None, None) => {
                if let Some(value) = get("parallel") {
                    self.reader.problem(&value.span, "`parallel` needs `each` or `matrix`", None);
                }
                None
            }
        };
        let parallel = get("parallel").and_then(|value| self.reader.int(value, 1..=PARALLEL_MAX as i64)).unwrap_or(1);
        (items, usize::try_from(parallel).unwrap_or(1))
    }

    /// Reads the lists of a matrix. The number of combinations is limited here as far as the lists stand in the file.
    fn matrix(&mut self, value: &FileValue) -> Vec<(String, Filled)> {
        let (mut lists, mut count) = (Vec::new(), 1_usize);
        let listed = self.reader.table(value);
        if listed.is_empty() {
            self.reader.problem(&value.span, "the matrix has no list", Some("matrix = { os = [\"linux\"] }".into()));
        }
        for list in listed {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if list.key.is_empty() || !list.key.chars().all(fits) || is_reserved(&list.key) {
                let hint =
                    "it is a variable of the command: letters, digits and `_`, not ITEM, PATH, HOME or ANNALS_..";
                self.reader.problem(&list.span, format!("`{}` cannot be a name", list.key), Some(hint.into()));
            }
            let Some(filled) = self.filled(&list.value) else { continue };
            if let Filled::Value(_) = &filled {
                match &list.value.kind {
                    ValueKind::List(items) if !items.is_empty() => count = count.saturating_mul(items.len()),
                    _ => {
                        let hint = "a list with an item at least, or an expression for one: \"= names\"";
                        self.reader.problem(&list.value.span, "expected a list", Some(hint.into()));
                    }
                }
            }
            lists.push((list.key.clone(), filled));
        }
        if count > EACH_ITEMS_MAX {
            let message = format!("the matrix has {count} combinations, more than {EACH_ITEMS_MAX}");
            self.reader.problem(&value.span, message, None);
        }
        lists
    }

    /// Reads the names of secrets.
    pub(super) fn secret_names(&mut self, value: Option<&FileValue>) -> Vec<String> {
        let mut names = Vec::new();
        for (name, span) in value.map(|value| self.reader.texts(value)).unwrap_or_default() {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(fits) || is_reserved(&name) {
                let hint = "it is a variable of commands: letters, digits and `_`, not ITEM, PATH, HOME or ANNALS_..";
                self.reader.problem(&span, format!("`{name}` cannot be the name of a secret"), Some(hint.into()));
            }
            names.push(name);
        }
        names
    }

    /// Reads the value of a header, whose expression may read secrets.
    pub(super) fn header(&mut self, value: &FileValue) -> Option<Filled> {
        let filled = self.reader.filled(value)?;
        let Filled::Expression(expression) = &filled else { return Some(filled) };
        for path in expression.paths() {
            match path {
                [root, name] if root == SECRETS && self.secrets.contains(name) => {}
                [root, ..] if root == SECRETS && !self.secrets.is_empty() => {
                    let hint = format!("secrets.NAME with one of {}", self.secrets.join(", "));
                    self.reader.problem(&value.span, "there is no such secret", Some(hint));
                }
                [channel, ..] => _ = self.channel_name(channel, &value.span),
                [] => {}
            }
        }
        Some(filled)
    }

    /// Reads `with`: values for channels of the workflow of a node.
    pub(super) fn with(&mut self, value: Option<&FileValue>, inner: &FlowSpec, path: &Path) -> Vec<(String, Filled)> {
        let mut with = Vec::new();
        for parameter in value.map(|value| self.reader.table(value)).unwrap_or_default() {
            if !inner.channels.iter().any(|(channel, _)| *channel == parameter.key) {
                let message = format!("{} has no channel `{}`", path.display(), parameter.key);
                let names = inner.channels.iter().map(|(channel, _)| channel.as_str());
                let near = crate::problem::nearest(&parameter.key, names);
                let hint = near.map(|near| format!("did you mean `{near}`?"));
                self.reader.problem(&parameter.span, message, hint);
            }
            with.extend(self.filled(&parameter.value).map(|value| (parameter.key.clone(), value)));
        }
        with
    }
}

fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || name.starts_with("ANNALS_")
}
