//! The secrets of a workflow: values that commands and requests get by name, and that are never stored.
//!
//! Invariant: whatever a node returns, its errors included, has passed [`Secrets::redacted`]. *Absent:* secrets that a
//! command prints in another encoding.

use std::fmt;
use std::sync::OnceLock;

use crate::process::{CommandError, CommandOutput};

/// The text in the place of a secret.
const REDACTED: &str = "***";

type Lookup = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The source of the values: the graph holds it, and [`Flow::secrets`](crate::Flow::secrets) sets it.
#[derive(Default)]
pub(crate) struct SecretSource(OnceLock<Lookup>);

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretSource")
    }
}

/// A secret without a value.
#[derive(Debug, thiserror::Error)]
#[error("secret `{0}` has no value")]
pub(crate) struct MissingSecret(pub(crate) String);

/// The names and values of the secrets of a file.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<(String, String)>);

impl SecretSource {
    /// Sets the source. A second call changes nothing and returns false.
    pub(crate) fn set(&self, lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> bool {
        self.0.set(Box::new(lookup)).is_ok()
    }

    pub(crate) fn read(&self, names: &[String]) -> Result<Secrets, MissingSecret> {
        let value = |name: &String| {
            let found = self.0.get().and_then(|lookup| lookup(name)).filter(|value| !value.is_empty());
            found.map(|value| (name.clone(), value)).ok_or_else(|| MissingSecret(name.clone()))
        };
        names.iter().map(value).collect::<Result<_, _>>().map(Secrets)
    }
}

impl Secrets {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter()
    }

    /// Returns a text with a mark in the place of each secret. Of secrets that contain each other the longer ones are
    /// replaced first.
    pub(crate) fn redacted(&self, text: String) -> String {
        let mut values: Vec<&String> = self.0.iter().map(|(_, value)| value).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values
            .into_iter()
            .fold(text, |text, value| if text.contains(value) { text.replace(value, REDACTED) } else { text })
    }

    /// Returns bytes alike. Bytes that are not UTF-8 are refused before they are stored.
    pub(crate) fn redacted_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(bytes) {
            Ok(text) => self.redacted(text).into_bytes(),
            Err(error) => error.into_bytes(),
        }
    }

    pub(crate) fn redacted_output(
        &self,
        ended: Result<CommandOutput, CommandError>,
    ) -> Result<CommandOutput, CommandError> {
        match ended {
            Ok(CommandOutput { status, stdout, stderr }) => {
                let (stdout, stderr) = (self.redacted_bytes(stdout), self.redacted(self.uncut(stderr)));
                Ok(CommandOutput { status, stdout, stderr })
            }
            Err(CommandError::Status { program, status, stderr }) => {
                Err(CommandError::Status { program, status, stderr: self.redacted(self.uncut(stderr)) })
            }
            Err(error) => Err(error),
        }
    }

    /// Removes from the end of stderr a beginning that may be the rest of a secret.
    fn uncut(&self, stderr: String) -> String {
        let longest = self.0.iter().map(|(_, value)| value.len()).max().unwrap_or(0);
        // The text was trimmed, and may have a colon before it.
        if longest == 0 || stderr.len() + longest < crate::limits::STDERR_BYTES_MAX {
            return stderr;
        }
        let at = (longest..stderr.len()).find(|at| stderr.is_char_boundary(*at)).unwrap_or(stderr.len());
        format!("..{}", &stderr[at..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_redacted_also_in_a_longer_one_and_at_a_cut() {
        let source = SecretSource::default();
        let names = ["A".to_owned(), "B".to_owned()];
        assert!(source.read(&names).is_err());
        assert!(source.set(|name| Some(if name == "A" { "key".into() } else { "key-long".into() })));
        let secrets = source.read(&names).unwrap_or_default();
        assert_eq!(secrets.redacted("a key, a key-long".into()), "a ***, a ***");
        let stderr = format!("y-long{}", "x".repeat(crate::limits::STDERR_BYTES_MAX - 6));
        let shown = secrets.redacted(secrets.uncut(stderr));
        assert!(shown.starts_with("..xx") && !shown.contains("long"), "{}", &shown[..20]);
    }
}
