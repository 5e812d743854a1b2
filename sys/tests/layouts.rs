//! The committed bindings against ROCm's headers, with another compiler than bindgen's. One C++ program per library asserts the
//! size and alignment of every structure, the offset of every field and the value of every constant. Items without a name in C
//! are left out and counted.
//!
//! Needs the headers in `$ROCM_PATH/include` (default `/opt/rocm`) and a C++ compiler, `$CXX` or the system's. Skipped
//! without the headers, unless `HIPVIT_TEST_ROCM` is set.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "an expectation that fails is the test that fails"
)]

#[allow(dead_code, reason = "only the headers matter here")]
#[path = "../build/allowlist.rs"]
mod allowlist;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use allowlist::{DEFINES, LIBRARIES};
use regex::{Captures, Regex};

/// Rust's keywords: bindgen appends an underscore to a C field of that name.
const KEYWORDS: &[&str] = &[
    "fn", "impl", "in", "loop", "match", "mod", "move", "ref", "self", "trait", "type", "use", "where",
];

/// Facts about C that a file of the bindings states.
#[derive(Default)]
struct Facts {
    /// C expressions and their values.
    equal: Vec<(String, String)>,
    /// Types and fields that have no name in C.
    anonymous: BTreeSet<String>,
}

impl Facts {
    /// Adds that the expression has this value, if all names in it are C's.
    fn add<const N: usize>(&mut self, names: [&str; N], expression: String, value: String) {
        let unnamed: Vec<&str> = names
            .into_iter()
            .filter(|name| name.contains("bindgen"))
            .collect();
        if unnamed.is_empty() {
            self.equal.push((expression, value));
        }
        self.anonymous.extend(unnamed.into_iter().map(str::to_owned));
    }
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a regular expression")
}

fn all<'a, const N: usize>(pattern: &str, text: &'a str) -> Vec<[&'a str; N]> {
    let groups = |found: Captures<'a>| found.extract().1;
    regex(pattern).captures_iter(text).map(groups).collect()
}

/// All that the file states; panics if it states something in a form that is not known here.
fn facts(rust: &str) -> Facts {
    let mut facts = Facts::default();
    let mut seen = 0;
    for [what, name, value] in all(r"\b(size|align)_of::<(\w+)>\(\)\s*-\s*(\d+)usize", rust) {
        seen += 1;
        facts.add([name], format!("{what}of({name})"), value.to_owned());
    }
    for [name, field, value] in all(
        r"\boffset_of!\(\s*(\w+),\s*(\w+)\s*,?\s*\)\s*-\s*(\d+)usize",
        rust,
    ) {
        seen += 1;
        let c_field = field
            .strip_suffix('_')
            .filter(|word| KEYWORDS.contains(word))
            .unwrap_or(field);
        facts.add(
            [name, field],
            format!("offsetof({name}, {c_field})"),
            value.to_owned(),
        );
    }
    for [name, rust_type, value] in all(
        r"\bpub const (\w+):\s*(\w+)\s*=\s*(?:\w+\()?\s*(-?\d+)\s*,?\s*\)?;",
        rust,
    ) {
        seen += 1;
        let c_type = match rust_type {
            "u32" => "unsigned",
            "i32" => "int",
            "u64" => "unsigned long long",
            // An enumeration, too.
            _ => "long long",
        };
        let suffix = if value.starts_with('-') { "LL" } else { "ULL" };
        facts.add(
            [name],
            format!("static_cast<{c_type}>({name})"),
            format!("static_cast<{c_type}>({value}{suffix})"),
        );
    }
    for [name, body] in all(r"(?s)\bpub enum (\w+) \{(.*?)\n\}", rust) {
        for [variant, value] in all(r"(?m)^ +(\w+) = (\d+),$", body) {
            let expression = format!("static_cast<unsigned>({name}::{variant})");
            facts.add([name, variant], expression, value.to_owned());
        }
    }
    // An array is generated from an enumeration that the headers have for bindgen alone.
    let stated = regex(r"\b(?:size_of::<|align_of::<|offset_of!\()|\bpub const \w+: [^\[]");
    let stated = stated.find_iter(rust).count();
    assert_eq!(seen, stated, "bindgen writes some facts in another form");
    facts
}

/// The C++ compiler, set to check one program on its standard input.
fn compiler() -> Command {
    let target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let compiler = cc::Build::new()
        .cpp(true)
        .std("c++17")
        .target(&target)
        .host(&target)
        .opt_level(0)
        .warnings(false)
        .cargo_metadata(false)
        .try_get_compiler()
        .expect("a C++ compiler; CXX names one");
    let mut command = compiler.to_command();
    command.args(["-fsyntax-only", "-Wno-invalid-offsetof", "-x", "c++", "-"]);
    command
}

/// The options for ROCm's headers.
fn rocm_options(include: &Path) -> Vec<String> {
    let mut options: Vec<String> = DEFINES.iter().map(|&define| define.to_owned()).collect();
    // The system's own folder stays where it is: moved to the front, it breaks the C++ library's includes.
    if include != Path::new("/usr/include") {
        options.extend(["-isystem".to_owned(), include.display().to_string()]);
    }
    options
}

/// Returns true if the compiler agrees with all facts; it reports the others on standard error.
fn agree(headers: &[&str], prelude: &str, facts: &Facts, options: &[String]) -> bool {
    let mut program = String::new();
    for header in headers.iter().chain(&["cstddef"]) {
        writeln!(program, "#include <{header}>").expect("a string");
    }
    program += prelude;
    for (expression, value) in &facts.equal {
        writeln!(
            program,
            r#"static_assert({expression} == {value}, "the bindings say {value}");"#
        )
        .expect("a string");
    }
    let mut child = compiler()
        .args(options)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the compiler starts");
    let mut input = child.stdin.take().expect("a pipe");
    input
        .write_all(program.as_bytes())
        .expect("the compiler reads the program");
    drop(input);
    child.wait().expect("the compiler ends").success()
}

#[test]
fn the_headers_have_the_bindings_layouts_and_constants() {
    let rocm = env::var_os("ROCM_PATH").unwrap_or_else(|| "/opt/rocm".into());
    let include = PathBuf::from(rocm).join("include");
    if !include.join("hip/hip_runtime_api.h").is_file() {
        let cause = format!("{} has no headers of ROCm", include.display());
        assert!(
            env::var_os("HIPVIT_TEST_ROCM").is_none(),
            "HIPVIT_TEST_ROCM is set: {cause}"
        );
        // Past the test harness, which keeps what passing tests print.
        let _ = writeln!(io::stderr(), "skipped: {cause}");
        return;
    }
    let bindings = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bindings");
    let mut wrong = Vec::new();
    for library in LIBRARIES {
        let file = bindings.join(library.module).with_extension("rs");
        let facts = facts(&fs::read_to_string(&file).expect("the committed bindings"));
        assert!(!facts.equal.is_empty(), "{} states nothing", file.display());
        println!(
            "{}: {} facts; {} names that C does not have, left out",
            library.module,
            facts.equal.len(),
            facts.anonymous.len()
        );
        if !agree(library.headers, "", &facts, &rocm_options(&include)) {
            wrong.push(library.module);
        }
    }
    // Declared by hand; its headers come with the profiler's package.
    let header = "rocprofiler-sdk/registration.h";
    let has = |header: &&str| include.join(header).is_file();
    if [header, "hsa/hsa.h", "hsakmt/hsakmttypes.h"].iter().all(has) {
        let file = bindings.with_file_name("rocprofiler/types.rs");
        let facts = facts(&fs::read_to_string(&file).expect("the declarations"));
        let headers = [
            header,
            "rocprofiler-sdk/callback_tracing.h",
            "rocprofiler-sdk/counters.h",
            "rocprofiler-sdk/dispatch_counting_service.h",
        ];
        println!("rocprofiler: {} facts", facts.equal.len());
        if !agree(&headers, "", &facts, &rocm_options(&include)) {
            wrong.push("rocprofiler");
        }
    } else {
        println!(
            "skipped: {} lacks the headers of rocprofiler-sdk",
            include.display()
        );
    }
    assert!(wrong.is_empty(), "the headers say otherwise: {wrong:?}");
}

/// The bindings of hipvit's own kernels, which are in the same repository.
#[test]
fn the_kernels_headers_have_the_bindings_layouts_and_constants() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (hip, bindings) = (root.join("hip"), root.join("src/kernels/bindings.rs"));
    if !bindings.is_file() || which_cxx().is_none() {
        let _ = writeln!(
            io::stderr(),
            "skipped: no kernels beside this crate, or no C++ compiler"
        );
        return;
    }
    let mut headers: Vec<String> = fs::read_dir(&hip)
        .expect("the kernels")
        .map(|entry| entry.expect("an entry").file_name().display().to_string())
        .filter(|name| {
            Path::new(name)
                .extension()
                .is_some_and(|extension| extension == "h")
        })
        .collect();
    headers.sort();
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let facts = facts(&fs::read_to_string(&bindings).expect("the committed bindings"));
    assert!(facts.equal.len() > 100, "{} states little", bindings.display());
    let options = [hip.clone(), hip.join("include")].map(|folder| format!("-I{}", folder.display()));
    assert!(agree(&headers, "using namespace hipvit;\n", &facts, &options));
}

/// The C++ compiler, if there is one.
fn which_cxx() -> Option<()> {
    let found = compiler()
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .status();
    found.ok().map(drop)
}

#[test]
fn facts_are_read_in_every_form() {
    let facts = facts(
        r#"
const _: () = {
    ["Size of dim3"][::core::mem::size_of::<dim3>() - 12usize];
    [
        "Offset of field: attributes::type_",
    ][::core::mem::offset_of!(attributes, type_) - 8usize];
    ["Alignment of it"][::core::mem::align_of::<it__bindgen_ty_1>() - 4usize];
};
pub const hipDeviceDefault: u32 = 7;
impl status { pub const failed: status = status(-3); }
"#,
    );
    let equal: Vec<(&str, &str)> = facts
        .equal
        .iter()
        .map(|(expression, value)| (expression.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        equal,
        [
            ("sizeof(dim3)", "12"),
            ("offsetof(attributes, type)", "8"),
            (
                "static_cast<unsigned>(hipDeviceDefault)",
                "static_cast<unsigned>(7ULL)"
            ),
            ("static_cast<long long>(failed)", "static_cast<long long>(-3LL)"),
        ]
    );
    assert_eq!(Vec::from_iter(facts.anonymous), ["it__bindgen_ty_1"]);
}
