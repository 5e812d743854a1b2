//! Calls the `tokenizers` crate, which panics on some files and texts. A panic becomes an error that names the file.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Display;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use crate::error::{Error, Result};

/// Maximum length of the crate's message about a file, in characters.
const MAX_MESSAGE: usize = 200;

thread_local! {
    /// True while panics of this thread are converted to errors.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `call`, and converts a panic in it to an error of `file`.
///
/// # Errors
///
/// Returns the errors of `call`, and [`Error::Config`] for a panic.
pub(super) fn guarded<T>(file: &Path, call: impl FnOnce() -> Result<T>) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let printing = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // The error contains what the hook would print.
            if !GUARDED.get() {
                printing(info);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(outer);
    result.unwrap_or_else(|panic| {
        let reason = format!("makes the tokenizer fail: {}", message(&*panic));
        Err(Error::config(file, reason))
    })
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    shortened(&text.unwrap_or("unknown reason"))
}

/// Joins the lines of a message, and shortens it. The crate's messages may contain a token of any length.
pub(super) fn shortened(message: &dyn Display) -> String {
    let text = message.to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_short() {
        assert_eq!(shortened(&"a  b\nc"), "a b c");
        assert_eq!(shortened(&"é".repeat(1000)), "é".repeat(200) + " …");
    }

    #[test]
    fn a_panic_is_an_error_that_names_the_file() {
        let file = Path::new("tokenizer.json");
        let error = guarded::<()>(file, || panic!("of\n{}", 7))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("tokenizer.json") && error.contains("of 7"),
            "{error}"
        );
        // An inner call does not end the outer call's guard.
        let nested = guarded(file, || {
            let inner = guarded::<()>(file, || panic!("inner"));
            assert!(inner.is_err() && GUARDED.get());
            Ok(1)
        });
        assert_eq!(nested.unwrap(), 1);
        assert!(!GUARDED.get());
    }
}
