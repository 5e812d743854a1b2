//! Finds the base model of an adapter.

use std::path::{Path, PathBuf};

use super::config;
use crate::error::{Error, Result};
use crate::model::document::Document;
use crate::model::fields::Fields;
use crate::model::file_names::{ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG};
use crate::model::hub::{Repository, Snapshot};
use crate::model::shell::shell;

/// Python program that merges an adapter with peft. Arguments: the class of transformers, the base model, the adapter,
/// the output directory.
const MERGE: &str = "import sys, transformers as t; from peft import PeftModel; c, b, a, o = sys.argv[1:]; \
                     PeftModel.from_pretrained(getattr(t, c).from_pretrained(b), a).merge_and_unload().save_pretrained(o); \
                     t.AutoImageProcessor.from_pretrained(b).save_pretrained(o)";

/// Base model of an adapter.
#[derive(Debug)]
pub(in crate::model) enum Base {
    Directory(PathBuf),
    Snapshot(Snapshot),
}

/// Finds the base model of an adapter. As in transformers, the name is first tried as a directory, then as a model in
/// the cache of the Hugging Face hub.
///
/// # Errors
///
/// Returns [`Error::Config`] if the type of the adapter is not supported, or if its base model does not exist.
pub(in crate::model) fn base(config: &Document) -> Result<Base> {
    let fields = config.fields()?;
    config::check_type(fields)?;
    let directory = config.file.parent().unwrap_or(Path::new("."));
    let Some(name) = fields
        .text("base_model_name_or_path")?
        .filter(|name| !name.is_empty())
    else {
        let reason = "is missing, so the adapter's base model is unknown. Copy the adapter's files into the directory of the base model";
        return Err(fields.error("base_model_name_or_path", reason));
    };
    if Path::new(name).is_dir() {
        return Ok(Base::Directory(name.into()));
    }
    let why = match base_repository(fields, name)? {
        Some(repository) => match repository.cached() {
            Ok(snapshot) => return Ok(Base::Snapshot(snapshot)),
            Err(error) => error.to_string(),
        },
        None => format!("{name}: there is no such directory"),
    };
    let alone = if directory.join(CONFIG).exists() {
        ""
    } else {
        ", without a model of its own"
    };
    let reason = format!(
        "is a LoRA adapter of `{name}`{alone}. It needs its base model ({why}). Or copy {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS} into \
         the directory of the base model. Or merge them first: {}",
        merge_command(fields, directory)
    );
    Err(Error::config(directory, reason))
}

/// Returns the repository of the base model `name`, at the revision that the adapter's configuration names. Returns
/// `None` if `name` is not a name on the hub.
///
/// # Errors
///
/// Returns [`Error::Config`] if `revision` is not a string.
pub(in crate::model) fn base_repository(config: Fields<'_>, name: &str) -> Result<Option<Repository>> {
    let revision = config.text("revision")?;
    let revision = revision.map_or(String::new(), |revision| format!("@{revision}"));
    Ok(Repository::parse(&format!("{name}{revision}")))
}

/// Returns the command line that merges an adapter with peft.
pub(super) fn merge_command(config: Fields<'_>, directory: &Path) -> String {
    let class = config.object("auto_mapping").ok().flatten();
    let class = class.and_then(|mapping| mapping.text("base_model_class").ok().flatten());
    let base = config.text("base_model_name_or_path").ok().flatten();
    format!(
        "python3 -c '{MERGE}' {} {} {} merged",
        shell(Path::new(class.unwrap_or("AutoModelForImageClassification"))),
        shell(Path::new(base.unwrap_or("BASE"))),
        shell(directory)
    )
}
