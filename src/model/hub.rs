//! Finds models of the Hugging Face hub in its local cache, which `hipvit pull`, `hf download`, timm and transformers
//! share.
//!
//! A repository is a folder `models--<org>--<name>`. In it, `refs/<revision>` contains the hash of a commit, and
//! `snapshots/<commit>/<file>` usually links to `blobs`.
//!
//! Loading a model downloads nothing; an error gives the command that does. `download` implements it.

#[cfg(feature = "hub")]
mod client;
#[cfg(feature = "hub")]
pub(super) mod download;

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::{env, fs};

use super::shell::shell;
use super::timm::pretrained;
use crate::error::{Error, Result};
use crate::nearest::nearest;
use hipvit_files::regular_file;

const MAIN: &str = "main";

/// Maximum length of a reference in bytes. A reference contains a commit's hash.
const LONGEST_REFERENCE: u64 = 4 << 10;
/// Sites with the pages of models. `HF_ENDPOINT` may name another.
const SITES: [&str; 4] = [
    "https://huggingface.co",
    "https://www.huggingface.co",
    "https://hf.co",
    "http://huggingface.co",
];

/// A model repository on the hub, `org/name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    id: String,
    /// Branch, tag or commit, if it is not the main branch.
    revision: Option<String>,
    /// Cache, if it is not the one that the environment names.
    cache: Option<PathBuf>,
}

/// Files of a repository at one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) path: PathBuf,
    pub(super) repository: Repository,
}

impl Repository {
    /// Parses `org/name` or `org/name@revision`, with or without timm's prefix `hf-hub:`, or the URL of a model's page.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let endpoint = env::var("HF_ENDPOINT").unwrap_or_default();
        let of_page = name_of_page(text, &endpoint);
        let text = of_page.as_deref().unwrap_or(text);
        let prefixed = ["hf-hub:", "hf_hub:", "hf://"]
            .iter()
            .find_map(|prefix| text.strip_prefix(prefix));
        let (id, revision) = match prefixed.unwrap_or(text).split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (prefixed.unwrap_or(text), None),
        };
        let mut parts = id.split('/');
        let named = match (parts.next(), parts.next(), parts.next()) {
            (Some(org), Some(name), None) => is_name(org) && is_name(name),
            // Some old repositories have no organisation.
            (Some(name), None, None) => prefixed.is_some() && is_name(name),
            _ => false,
        };
        let revision_is_path = |revision: &str| {
            !revision.is_empty()
                && Path::new(revision)
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)))
        };
        (named && revision.is_none_or(revision_is_path)).then(|| Self {
            id: id.to_owned(),
            revision: revision.map(str::to_owned),
            cache: None,
        })
    }

    /// Returns the repository whose folder in a cache is called `folder`.
    fn of_folder(folder: &OsStr) -> Option<Self> {
        let id = folder.to_str()?.strip_prefix("models--")?.replace("--", "/");
        Some(Self {
            id,
            revision: None,
            cache: None,
        })
    }

    /// Returns the repository that `path` is a snapshot of, if it is a snapshot.
    pub(super) fn of_snapshot(path: &Path) -> Option<Self> {
        let snapshots = path.parent()?;
        let folder = snapshots.parent()?;
        if snapshots.file_name()? == "snapshots" {
            Some(Self {
                revision: Some(path.file_name()?.to_str()?.to_owned()),
                cache: folder.parent().map(Path::to_owned),
                ..Self::of_folder(folder.file_name()?)?
            })
        } else {
            None
        }
    }

    /// Returns the name, `org/name`.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the branch, tag or commit.
    fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }

    /// Returns the name of the repository's folder in a cache.
    fn folder(&self) -> String {
        format!("models--{}", self.id.replace('/', "--"))
    }

    /// Returns the repository of the default weights, if the name is a bare architecture name of timm.
    fn default_weights(&self) -> Option<Self> {
        let name = pretrained::default_weights(self.id.strip_prefix("timm/")?)?;
        Some(Self {
            id: format!("timm/{name}"),
            ..self.clone()
        })
    }

    /// Returns the command that downloads the model.
    pub(super) fn download(&self) -> String {
        let revision = self.revision.as_ref().map(|revision| format!("@{revision}"));
        let name = format!("{}{}", self.id, revision.unwrap_or_default());
        let command = format!("hipvit pull {}", shell(Path::new(&name)));
        let elsewhere = |cache: &&Path| Some(*cache) != environment().as_deref();
        match self.cache.as_deref().filter(elsewhere) {
            Some(cache) => format!("HF_HUB_CACHE={} {command}", shell(cache)),
            None => command,
        }
    }

    /// Returns an error about the model.
    pub(super) fn error(&self, reason: impl std::fmt::Display) -> Error {
        let revision = match &self.revision {
            Some(revision) => format!("@{revision}"),
            None => String::new(),
        };
        Error::Hub {
            model: format!("{}{revision}", self.id),
            reason: reason.to_string(),
        }
    }

    /// Returns the snapshot in the cache that the environment names.
    pub(super) fn cached(&self) -> Result<Snapshot> {
        match environment() {
            Some(cache) => self.cached_in(&cache),
            None => Err(self.error(format_args!(
                "not a local directory, and there is no home directory to have a Hugging Face cache. Set HF_HUB_CACHE, then \
                 download it with: {}",
                self.download()
            ))),
        }
    }

    fn cached_in(&self, cache: &Path) -> Result<Snapshot> {
        if cache.join(self.folder()).is_dir() {
            return self.snapshot(cache);
        }
        let named = self.default_weights();
        match &named {
            Some(named) if cache.join(named.folder()).is_dir() => named.snapshot(cache),
            _ => Err(self.error(format_args!(
                "not a local directory and not in the Hugging Face cache ({}{}). Download it with: {}",
                cache.display(),
                self.others(cache),
                named.as_ref().unwrap_or(self).download()
            ))),
        }
    }

    /// Describes similar models in the cache: the same name with another tag, or a similar name.
    fn others(&self, cache: &Path) -> String {
        let entries = fs::read_dir(cache).into_iter().flatten().flatten();
        let cached: Vec<String> = entries
            .filter_map(|entry| Some(Self::of_folder(&entry.file_name())?.id))
            .collect();
        let tagged = format!("{}.", self.id);
        let mut others: Vec<&str> = cached
            .iter()
            .map(String::as_str)
            .filter(|id| id.starts_with(&tagged))
            .collect();
        others.sort_unstable();
        if others.is_empty() {
            others = nearest(&self.id, cached.iter().map(|id| (id, id.as_str())));
        }
        if others.is_empty() {
            String::new()
        } else {
            format!(", which has {}", others.join(", "))
        }
    }

    /// Returns the snapshot of this repository, which has a folder in `cache`.
    fn snapshot(&self, cache: &Path) -> Result<Snapshot> {
        let folder = cache.join(self.folder());
        let revision = self.revision();
        let reference = folder.join("refs").join(revision);
        let commit = match regular_file::read_within(&reference, LONGEST_REFERENCE) {
            Ok(commit) => String::from_utf8_lossy(&commit).trim().to_owned(),
            // The name of a longer reference may begin with this one, which is then a folder.
            Err(_) if !reference.exists() || reference.is_dir() => revision.to_owned(),
            Err(error) => return Err(Error::io(&reference, error)),
        };
        let path = folder.join("snapshots").join(&commit);
        let inside = Path::new(&commit)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if inside && !commit.is_empty() && path.is_dir() {
            return Ok(Snapshot {
                path,
                repository: self.clone(),
            });
        }
        let mut there = Vec::new();
        references(&folder.join("refs"), Path::new(""), &mut there);
        let snapshots = fs::read_dir(folder.join("snapshots"))
            .into_iter()
            .flatten()
            .flatten();
        there.extend(snapshots.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        there.retain(|name| name != revision);
        there.sort_unstable();
        let there = if there.is_empty() {
            "none".to_owned()
        } else {
            format!("{}, which @ behind the name selects", there.join(", "))
        };
        Err(self.error(format_args!(
            "in the Hugging Face cache ({}), but not its revision {revision}. There is {there}. Download it with: {}",
            folder.display(),
            self.download()
        )))
    }
}

impl Snapshot {
    /// Returns the main revision of the repository whose folder in a cache is `folder`, if it is one.
    pub(super) fn of_folder(folder: &Path) -> Option<Result<Self>> {
        let folder = fs::canonicalize(folder).ok()?;
        let cache = folder.parent()?;
        let repository = Repository {
            cache: Some(cache.to_owned()),
            ..Repository::of_folder(folder.file_name()?)?
        };
        folder
            .join("snapshots")
            .is_dir()
            .then(|| repository.snapshot(cache))
    }
}

/// Collects the branches and tags in `refs`. They are files, in folders if their names contain slashes.
fn references(refs: &Path, below: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(refs).into_iter().flatten().flatten() {
        let name = below.join(entry.file_name());
        if entry.path().is_dir() {
            references(&entry.path(), &name, found);
        } else {
            found.push(name.to_string_lossy().into_owned());
        }
    }
}

/// Converts the URL of a model's page to `hf://org/name` or `hf://org/name@revision`. `endpoint` is an additional site,
/// or empty.
fn name_of_page(url: &str, endpoint: &str) -> Option<String> {
    let endpoint = Some(endpoint.trim_end_matches('/')).filter(|endpoint| !endpoint.is_empty());
    let path = SITES
        .into_iter()
        .chain(endpoint)
        .find_map(|site| url.strip_prefix(site)?.strip_prefix('/'))?;
    let path = path.split(['?', '#']).next()?.trim_end_matches('/');
    // A revision with slashes, such as refs/pr/1, is escaped in the URL of its page.
    let name = path.replacen("/tree/", "@", 1).replace("%2F", "/");
    Some(format!("hf://{name}"))
}

/// Returns true if the hub allows the text as a name.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !text.starts_with(['-', '.'])
        && !text.ends_with(['-', '.'])
        && !text.contains("--")
        && !text.contains("..")
}

/// Returns the value of an environment variable, unless it is empty.
#[cfg(feature = "hub")]
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the hub's cache, from the variables that `huggingface_hub` reads.
fn environment() -> Option<PathBuf> {
    find(|name| env::var_os(name), env::home_dir())
}

/// Returns the folder of `huggingface_hub`, with its cache and the token of `hf auth login`.
#[cfg(feature = "hub")]
fn hugging_face_home() -> Option<PathBuf> {
    find_home(&|name: &str| env::var_os(name), env::home_dir().as_deref())
}

fn find(variable: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    folder(&variable, home.as_deref(), "HF_HUB_CACHE")
        .or_else(|| folder(&variable, home.as_deref(), "HUGGINGFACE_HUB_CACHE"))
        .or_else(|| Some(find_home(&variable, home.as_deref())?.join("hub")))
}

fn find_home(variable: &impl Fn(&str) -> Option<OsString>, home: Option<&Path>) -> Option<PathBuf> {
    folder(variable, home, "HF_HOME")
        .or_else(|| Some(folder(variable, home, "XDG_CACHE_HOME")?.join("huggingface")))
        .or_else(|| Some(home?.join(".cache/huggingface")))
}

/// Returns the folder that a variable names. `~` is the home directory.
fn folder(variable: &impl Fn(&str) -> Option<OsString>, home: Option<&Path>, name: &str) -> Option<PathBuf> {
    let value = PathBuf::from(variable(name).filter(|value| !value.is_empty())?);
    match (value.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => Some(home.join(rest)),
        _ => Some(value),
    }
}

#[cfg(test)]
mod tests;
