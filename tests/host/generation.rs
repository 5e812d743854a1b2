//! Texts of images beside those of transformers, on the CPU and by the command line.

use hipvit::{DType, Device, Session};
use hipvit_generate::{GenerateOptions, Generator, Sampling};
use serde_json::Value;

use crate::support::at;
use crate::support::generation::cases;
use crate::support::program::{hipvit, stderr, stdout};

/// Batches of one, three and more images than there are: images enter when others leave.
#[test]
fn texts_are_those_of_transformers() {
    for case in cases() {
        for batch in [1, 3, 8] {
            let builder = Session::builder().device(Device::Cpu).batch(batch);
            let mut generator = case.load(&builder);
            let mut streamed = vec![Vec::new(); case.texts.len()];
            case.generate(&mut generator, &mut |image, token| streamed[image].push(token));
            let expected: Vec<Vec<u32>> = case.texts.iter().map(|text| text.tokens.clone()).collect();
            assert_eq!(streamed, expected);
            // The pages of the first call came back.
            case.generate(&mut generator, &mut |_, _| {});
        }
    }
}

/// The cache has fewer pages than three texts of this length need. Sequences lose their pages and compute their tokens again.
#[test]
fn texts_do_not_depend_on_the_pages_of_others() {
    let case = &cases()[0];
    let options = GenerateOptions {
        max_tokens: Some(39),
        ..GenerateOptions::default()
    };
    let texts = |batch| {
        let mut generator = case.load(&Session::builder().device(Device::Cpu).batch(batch));
        let first = generator
            .generate(&case.images(), &options, &mut |_, _| {})
            .unwrap();
        let again = generator
            .generate(&case.images(), &options, &mut |_, _| {})
            .unwrap();
        assert_eq!(first, again);
        first
    };
    let alone = texts(1);
    assert!(
        alone.iter().filter(|text| text.tokens.len() > 32).count() > 2,
        "{alone:?}"
    );
    assert_eq!(texts(3), alone);
    let random = GenerateOptions {
        sampling: Some(Sampling::default()),
        ..options.clone()
    };
    let sampled = |batch| {
        let mut generator = case.load(&Session::builder().device(Device::Cpu).batch(batch));
        generator
            .generate(&case.images(), &random, &mut |_, _| {})
            .unwrap()
    };
    assert_eq!(sampled(1), sampled(4));
    assert_ne!(sampled(1), alone);
}

#[test]
fn logits_are_those_of_transformers() {
    for case in cases() {
        case.check_logits(Device::Cpu, DType::F32);
    }
}

#[test]
fn lengths_are_those_of_the_files_or_the_caller() {
    let case = &cases()[0];
    let mut generator = case.load(&Session::builder().device(Device::Cpu));
    let images = &case.images()[..1];
    let options = |max_tokens| GenerateOptions {
        max_tokens,
        ..GenerateOptions::default()
    };
    let mut length = |max_tokens| {
        let texts = generator.generate(images, &options(max_tokens), &mut |_, _| {});
        texts.map(|texts| texts[0].tokens.len())
    };
    assert_eq!(length(Some(1)).unwrap(), 1);
    // transformers' default.
    assert_eq!(length(None).unwrap(), 20);
    let error = length(Some(40)).unwrap_err().to_string();
    assert!(error.contains("40 are more than the 39"), "{error}");
    assert!(length(Some(0)).is_err());
    let mut error = |texts: &[&[u32]]| generator.logits(images, texts).unwrap_err().to_string();
    assert!(error(&[]).contains("are 0, but there are 1 images"));
    assert!(error(&[&[40]]).contains("have tokens below 40, and one has 40"));
    assert!(error(&[&[0; 41]]).contains("at most 40 tokens, and one has 41"));
}

/// Each text of a batch has pages for the given length, at most for the model's context of 40 tokens.
#[test]
fn the_cache_has_room_for_the_length_asked_for() {
    let case = &cases()[0];
    let builder = Session::builder().device(Device::Cpu).batch(4);
    let bytes = |max_tokens| {
        let generator = Generator::load(case.path(), &builder, max_tokens).unwrap();
        generator.cache_bytes().unwrap()
    };
    // One, two and three pages of 16 tokens per text.
    assert_eq!(bytes(Some(1)), bytes(Some(16)));
    let growth = bytes(Some(17)) - bytes(Some(16));
    assert!(growth > 0);
    assert_eq!(bytes(Some(33)) - bytes(Some(32)), growth);
    assert_eq!(bytes(None), bytes(Some(20)));
    assert_eq!(bytes(Some(usize::MAX)), bytes(Some(39)));
}

/// The encoder alone is a model of images. A model without a decoder is refused by name.
#[test]
fn encoders_embed_and_classifiers_make_no_text() {
    let builder = Session::builder().device(Device::Cpu);
    let session = builder.load(cases()[0].path()).unwrap();
    assert_eq!((session.info().classes, session.info().dim), (0, 32));
    let error = Generator::load(at("tests/golden/hf_vit"), &builder, None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("\"vision-encoder-decoder\""), "{error}");
}

#[test]
fn the_command_line_reads_images() {
    let case = &cases()[0];
    let (model, photo) = (case.path(), at("tests/golden/images/photo.jpg"));
    let [model, photo] = [&model, &photo].map(|path| path.to_str().unwrap());
    let run = |more: &[&str]| {
        hipvit(
            [
                &[
                    "read",
                    photo,
                    "-m",
                    model,
                    "--max-tokens",
                    "24",
                    "--device",
                    "cpu",
                ],
                more,
            ]
            .concat(),
        )
    };
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), format!("{photo}: {}\n", case.texts[0].text));
    let json: Value = serde_json::from_str(stdout(&run(&["--json"]))).unwrap();
    assert_eq!(
        (&json["text"], &json["tokens"], &json["finish"]),
        (&case.texts[0].text.as_str().into(), &24.into(), &"length".into())
    );
    let csv = run(&["--format", "csv"]);
    let rows: Vec<String> = stdout(&csv).lines().map(str::to_owned).collect();
    assert_eq!(
        rows,
        [
            "image,text,tokens,finish",
            &format!("{photo},{},24,length", case.texts[0].text)
        ]
    );
    let caption = |name: &str| {
        let case = cases()
            .into_iter()
            .find(|case| case.path().ends_with(name))
            .unwrap();
        let model = case.path();
        let output = hipvit([
            "caption",
            photo,
            "-m",
            model.to_str().unwrap(),
            "--max-tokens",
            "24",
            "--device",
            "cpu",
        ]);
        (stdout(&output).to_owned(), case.texts[0].text.clone())
    };
    let (line, text) = caption("blip");
    assert_eq!(line, format!("{photo}: {text}\n"));
    let none = hipvit(["read", photo]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("-m MODEL is required"));
}
