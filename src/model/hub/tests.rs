use super::*;

fn repository(text: &str) -> Repository {
    Repository::parse(text).unwrap()
}

/// Creates a cache with a snapshot of `id` at `commit`, to which `references` point.
fn cache(root: &Path, id: &str, commit: &str, references: &[&str]) -> PathBuf {
    let folder = root.join(repository(&format!("hf-hub:{id}")).folder());
    let snapshot = folder.join("snapshots").join(commit);
    fs::create_dir_all(&snapshot).unwrap();
    for name in references {
        let file = folder.join("refs").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, commit).unwrap();
    }
    snapshot
}

#[test]
fn names_on_the_hub_are_told_from_paths() {
    let parsed = |text: &str| Repository::parse(text).map(|found| (found.id, found.revision));
    let id = |id: &str, revision: Option<&str>| Some((id.to_owned(), revision.map(str::to_owned)));
    assert_eq!(
        parsed("google/vit-base-patch16-224"),
        id("google/vit-base-patch16-224", None)
    );
    assert_eq!(parsed("hf-hub:timm/a.b_c@v1"), id("timm/a.b_c", Some("v1")));
    assert_eq!(
        parsed("hf://org/name@refs/pr/1"),
        id("org/name", Some("refs/pr/1"))
    );
    assert_eq!(parsed("hf_hub:gpt2"), id("gpt2", None));
    for text in [
        "",
        "name",
        "./org/name",
        "/org/name",
        "../name",
        "org/",
        "/name",
        "org/name/more",
        "org/name@",
        "a b/c",
        "org/na--me",
        "org/.name",
        "-org/name",
        "org/name@../x",
        "org/name@/x",
        "models/vit.safetensors/",
        "C:\\a",
        "hf-hub:",
        "https://huggingface.co/",
        "https://huggingface.co/datasets/org/name",
        "https://huggingface.co/org/name/blob/main/config.json",
        "https://huggingface.co.example.org/org/name",
        "https://example.org/org/name",
        "file:///org/name",
    ] {
        assert_eq!(parsed(text), None, "{text}");
    }
}

#[test]
fn the_url_of_a_page_names_its_model() {
    let named = |url: &str| {
        let name = name_of_page(url, "http://mirror.local/hf/")?;
        let found = Repository::parse(&name)?;
        Some((found.id, found.revision))
    };
    for (url, id, revision) in [
        (
            "https://huggingface.co/google/vit-base-patch16-224",
            "google/vit-base-patch16-224",
            None,
        ),
        ("https://huggingface.co/org/name/", "org/name", None),
        ("https://hf.co/org/name?library=timm#usage", "org/name", None),
        ("https://huggingface.co/org/name/tree/v1", "org/name", Some("v1")),
        (
            "https://huggingface.co/org/name/tree/refs%2Fpr%2F1",
            "org/name",
            Some("refs/pr/1"),
        ),
        ("https://huggingface.co/gpt2", "gpt2", None),
        ("http://mirror.local/hf/org/name", "org/name", None),
    ] {
        let expected = Some((id.to_owned(), revision.map(str::to_owned)));
        assert_eq!(named(url), expected, "{url}");
    }
    assert_eq!(
        repository("https://huggingface.co/org/name/tree/v1"),
        repository("org/name@v1")
    );
}

#[test]
fn the_cache_is_where_the_hubs_library_has_it() {
    let found = |variables: &[(&str, &str)]| {
        let value = |name: &str| Some(variables.iter().find(|(key, _)| *key == name)?.1.into());
        find(value, Some("/home/u".into()))
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(found(&[]), "/home/u/.cache/huggingface/hub");
    assert_eq!(found(&[("XDG_CACHE_HOME", "/c")]), "/c/huggingface/hub");
    assert_eq!(found(&[("XDG_CACHE_HOME", "/c"), ("HF_HOME", "/h")]), "/h/hub");
    assert_eq!(
        found(&[("HF_HOME", "~/h"), ("HUGGINGFACE_HUB_CACHE", "")]),
        "/home/u/h/hub"
    );
    assert_eq!(
        found(&[("HF_HOME", "/h"), ("HUGGINGFACE_HUB_CACHE", "/old")]),
        "/old"
    );
    assert_eq!(
        found(&[("HF_HUB_CACHE", "/new"), ("HUGGINGFACE_HUB_CACHE", "/old")]),
        "/new"
    );
    assert_eq!(find(|_| None, None), None);
}

#[test]
fn a_revision_is_a_branch_a_tag_or_a_commit() {
    let root = tempfile::tempdir().unwrap();
    let first = cache(root.path(), "org/name", "aaa", &["main"]);
    let second = cache(root.path(), "org/name", "bbb", &["v2", "refs/pr/1"]);
    let at = |text: &str| repository(text).cached_in(root.path()).unwrap();
    assert_eq!(at("org/name").path, first);
    assert_eq!(at("org/name@aaa").path, first);
    for text in ["org/name@v2", "org/name@bbb", "org/name@refs/pr/1"] {
        assert_eq!(at(text).path, second, "{text}");
        assert_eq!(at(text).repository.id(), "org/name");
    }
    let error = repository("org/name@v3")
        .cached_in(root.path())
        .unwrap_err()
        .to_string();
    let expected = "org/name@v3: in the Hugging Face cache (DIR/models--org--name), but not its revision v3. There is aaa, \
                    bbb, main, refs/pr/1, v2, which @ behind the name selects. Download it with: hipvit pull org/name@v3";
    assert_eq!(error.replace(root.path().to_str().unwrap(), "DIR"), expected);
    // Without a main branch, no other revision is chosen.
    cache(root.path(), "org/other", "ccc", &[]);
    let error = repository("org/other")
        .cached_in(root.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains("not its revision main. There is ccc,"), "{error}");
    // A file in `refs` cannot lead out of the cache.
    fs::write(root.path().join("models--org--other/refs"), "").unwrap();
    cache(root.path(), "org/third", "ddd", &["main"]);
    fs::write(
        root.path().join("models--org--third/refs/main"),
        "../../models--org--name/snapshots/aaa",
    )
    .unwrap();
    assert!(repository("org/third").cached_in(root.path()).is_err());
}

#[test]
fn what_is_not_cached_is_an_error_with_the_command() {
    let root = tempfile::tempdir().unwrap();
    let error = |text: &str| {
        let error = repository(text).cached_in(root.path()).unwrap_err().to_string();
        error.replace(root.path().to_str().unwrap(), "DIR")
    };
    assert_eq!(
        error("google/vit-base-patch16-224"),
        "google/vit-base-patch16-224: not a local directory and not in the Hugging Face cache (DIR). Download it with: \
         hipvit pull google/vit-base-patch16-224"
    );
    // timm's repositories have a tag, which its bare names omit.
    let bare = "timm/vit_base_patch16_224: not a local directory and not in the Hugging Face cache (DIR). Download it with: \
                hipvit pull timm/vit_base_patch16_224.augreg2_in21k_ft_in1k";
    assert_eq!(error("timm/vit_base_patch16_224"), bare);
    cache(
        root.path(),
        "timm/vit_base_patch16_224.orig_in21k",
        "aaa",
        &["main"],
    );
    cache(root.path(), "google/vit-base-patch16-224-in21k", "aaa", &["main"]);
    let other = error("timm/vit_base_patch16_224");
    assert!(
        other.contains("(DIR, which has timm/vit_base_patch16_224.orig_in21k)"),
        "{other}"
    );
    let other = error("google/vit-base-patch16-224");
    assert!(
        other.contains("(DIR, which has google/vit-base-patch16-224-in21k"),
        "{other}"
    );
    let named = cache(
        root.path(),
        "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k",
        "bbb",
        &["main"],
    );
    let found = repository("timm/vit_base_patch16_224")
        .cached_in(root.path())
        .unwrap();
    assert_eq!(
        (found.path, found.repository.id()),
        (named, "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k")
    );
}

#[test]
fn a_path_into_a_cache_names_its_repository() {
    let root = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(root.path()).unwrap();
    let path = cache(&root, "org/name", "aaa", &["main"]);
    let snapshot = Snapshot::of_folder(&root.join("models--org--name"))
        .unwrap()
        .unwrap();
    assert_eq!((&snapshot.path, snapshot.repository.id()), (&path, "org/name"));
    let found = Repository::of_snapshot(&path).unwrap();
    assert_eq!((found.id(), found.revision.as_deref()), ("org/name", Some("aaa")));
    assert_eq!(
        found.download(),
        format!("HF_HUB_CACHE={} hipvit pull org/name@aaa", shell(&root))
    );
    assert_eq!(Repository::of_snapshot(&root), None);
    assert!(Snapshot::of_folder(&root).is_none());
    assert_eq!(shell(Path::new("it's here")), r"'it'\''s here'");
}
