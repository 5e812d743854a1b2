//! Texts of images beside those of transformers, on the CPU and by the command line.

use std::collections::HashMap;

use hipvit::exec::{ExecutorOptions, Inputs, Placement};
use hipvit::graph::{Passes, optimize};
use hipvit::model::{self, Checkpoint, LoadOptions};
use hipvit::reference::model_tolerance;
use hipvit::tensor::Input;
use hipvit::{DType, Device, Session};
use hipvit_generate::{
    Event, GenerateOptions, Generator, Progress, Sampling, TextDecoder, TextId, TextStream, makes_texts,
    text_inputs,
};
use serde_json::Value;

use crate::support::at;
use crate::support::generation::{LENGTH, case, cases, prompted, searched, tiled};
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

/// The graph of whole texts, which training differentiates, has the logits of steps of one token, which are transformers'.
#[test]
fn whole_texts_have_the_logits_of_single_tokens() {
    let mut trained = 0;
    for case in cases() {
        let path = case.path();
        let checkpoint = Checkpoint::open(Some(&path)).unwrap();
        let Ok(decoder) = TextDecoder::open(&path, checkpoint.config()) else {
            assert!(
                case.name.starts_with("blip") || case.name.starts_with("donut"),
                "{}",
                case.name
            );
            continue;
        };
        let load = LoadOptions {
            tokens: true,
            ..LoadOptions::default()
        };
        let model = model::load(&path, &load).unwrap();
        let graph = decoder.append(model.graph.clone(), &checkpoint, LENGTH).unwrap();
        let (graph, _) = optimize(graph, &Passes::default()).unwrap();
        let executor = Placement::Host
            .executor(&graph, &ExecutorOptions::new(DType::F32))
            .unwrap();
        let images = case.images();
        let (mut pixels, mut tokens, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        for (image, text) in images.iter().zip(&case.texts) {
            pixels.extend(model.preprocess.apply(image).unwrap().data);
            let row = decoder.row(&text.tokens, LENGTH);
            tokens.extend(row.tokens);
            positions.extend(row.positions);
        }
        let plan = executor.plan(images.len()).unwrap();
        let named = [
            (plan.graph().first_input_name(), Input::Pixels(&pixels).into()),
            (text_inputs::TOKENS, Input::Integers(&tokens).into()),
            (text_inputs::POSITIONS, Input::Integers(&positions).into()),
        ];
        let outputs = executor.run_inputs(&plan, Inputs::new(named)).unwrap();
        let whole = &outputs.get("logits").unwrap().values;
        let mut generator = case.load(&Session::builder().device(Device::Cpu).batch(4));
        let texts: Vec<&[u32]> = case.texts.iter().map(|text| text.tokens.as_slice()).collect();
        let single = generator.logits(&images, None, &texts).unwrap();
        let (mut error, mut size) = (0.0, 0.0);
        for (image, single) in single.iter().enumerate() {
            for ((token, class), &expected) in single.indexed_iter() {
                error += f64::from(whole[[image * LENGTH + token, class]] - expected).powi(2);
                size += f64::from(expected).powi(2);
            }
        }
        // Both have rounding errors.
        let bound = 2.0 * model_tolerance(DType::F32, graph.nodes().len());
        let error = (error / size).sqrt();
        assert!(
            error <= bound,
            "{}: {error:.2e}, more than {bound:.2e}",
            case.name
        );
        trained += 1;
    }
    assert_eq!(trained, 3);
}

/// Guessed tokens change the steps, not the text.
#[test]
fn drafts_do_not_change_texts() {
    let mut accepted = 0;
    for case in cases() {
        for (batch, draft) in [(1, 1), (3, 4), (8, 30)] {
            let builder = Session::builder().device(Device::Cpu).batch(batch);
            let mut generator = case.load(&builder);
            let options = GenerateOptions {
                draft,
                ..case.options()
            };
            let texts = generator
                .generate(&case.images(), &options, &mut |_, _| {})
                .unwrap();
            let tokens = |texts: &[hipvit_generate::Generated]| -> Vec<Vec<u32>> {
                texts.iter().map(|text| text.tokens.clone()).collect()
            };
            let expected: Vec<Vec<u32>> = case.texts.iter().map(|text| text.tokens.clone()).collect();
            assert_eq!(tokens(&texts), expected);
            let found = generator.speculation();
            assert_eq!(found.tokens, expected.iter().map(Vec::len).sum::<usize>());
            assert_eq!(found.tokens, found.steps + found.accepted, "{found:?}");
            assert!(found.accepted <= found.drafted, "{found:?}");
            accepted += found.accepted;
            assert_eq!(generator.pages().0, 0);
        }
    }
    assert!(accepted > 20, "texts repeat themselves: {accepted}");
}

/// A model that guesses its own tokens is always right, another one seldom. The text is the same.
#[test]
fn a_draft_model_does_not_change_texts() {
    let cases = cases();
    let find = |name: &str| cases.iter().find(|case| case.name == name).unwrap();
    let case = find("trocr_base");
    for (draft_model, batch, draft) in [("trocr_base", 1, 3), ("trocr_base", 8, 6), ("trocr_small", 3, 4)] {
        let mut generator = case.load(&Session::builder().device(Device::Cpu).batch(batch));
        let options = GenerateOptions {
            draft,
            ..case.options()
        };
        let model = at("tests/golden/generation").join(draft_model);
        generator.load_draft_model(model, &options).unwrap();
        for _ in 0..2 {
            let before = generator.speculation();
            let texts = generator
                .generate(&case.images(), &options, &mut |_, _| {})
                .unwrap();
            for (text, expected) in texts.iter().zip(&case.texts) {
                assert_eq!(text.tokens, expected.tokens);
            }
            let found = generator.speculation();
            let [drafted, accepted] = [found.drafted - before.drafted, found.accepted - before.accepted];
            assert!(drafted > 0 && accepted <= drafted, "{found:?}");
            if draft_model == case.name {
                assert_eq!(accepted, drafted);
            } else {
                assert!(accepted < drafted / 2, "{found:?}");
            }
        }
        generator.remove_draft_model();
    }
    let mut generator = case.load(&Session::builder().device(Device::Cpu));
    let error = generator.load_draft_model(at("tests/golden/generation/donut"), &case.options());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("draft model: has 48 tokens, expected the 40 of the model"),
        "{error}"
    );
}

/// Several images at a time, or one after the other where the cache is small.
#[test]
fn beams_are_those_of_transformers() {
    let cases = cases();
    for searched in searched() {
        let case = cases.iter().find(|case| case.name == searched.name).unwrap();
        // The cache has room for the beams that the files ask for.
        let least = if searched.name.starts_with("blip") {
            searched.num_beams
        } else {
            1
        };
        searched.check(case, Device::Cpu, 8);
        let mut generator = searched.check(case, Device::Cpu, least);
        if searched.num_beams != 4 {
            continue;
        }
        let mut error = |beams, max_tokens, draft| {
            let options = GenerateOptions {
                beams: Some(beams),
                max_tokens: Some(max_tokens),
                draft,
                ..GenerateOptions::default()
            };
            let texts = generator.generate(&case.images(), &options, &mut |_, _| {});
            texts.unwrap_err().to_string()
        };
        assert!(error(0, 4, 0).contains("at least one is needed"));
        assert!(error(2, 4, 3).contains("exclude a random choice"));
        let few = error(9, 39, 0);
        assert!(few.contains("need 27 pages of the cache, which has "), "{few}");
    }
}

#[test]
fn prompts_are_continued_as_by_transformers() {
    let mut checked = 0;
    for prompted in prompted() {
        let mut case = case(&prompted.name);
        case.prompt = Some(prompted.prompt);
        for batch in [1, 3] {
            let mut generator = case.load(&Session::builder().device(Device::Cpu).batch(batch));
            let texts = generator
                .generate(&case.images(), &case.options(), &mut |_, _| {})
                .unwrap();
            let tokens: Vec<Vec<u32>> = texts.into_iter().map(|text| text.tokens).collect();
            assert_eq!(tokens, prompted.tokens, "{}", case.name);
            checked += 1;
        }
    }
    assert_eq!(checked, 4);
}

/// Images are divided into tiles, whose tokens are part of the decoder's own sequence.
#[test]
fn texts_about_tiles_are_those_of_transformers() {
    let cases = tiled();
    assert_eq!(cases.len(), 3);
    for case in cases {
        case.check_logits(Device::Cpu, DType::F32);
        for (batch, draft) in [(1, 0), (3, 4), (8, 0)] {
            case.check(&Session::builder().device(Device::Cpu).batch(batch), draft);
        }
    }
}

#[test]
fn questions_are_asked_by_the_command_line() {
    let case = &tiled()[0];
    let (model, photo) = (case.path(), at("tests/golden/images/photo.jpg"));
    let [model, photo] = [&model, &photo].map(|path| path.to_str().unwrap());
    let ask = |prompt: &str| {
        let caption = [
            "caption",
            photo,
            "-m",
            model,
            "--max-tokens",
            "24",
            "--device",
            "cpu",
        ];
        hipvit([&caption[..], &["--prompt", prompt]].concat())
    };
    let prompt = case.prompt.as_deref().unwrap();
    let output = ask(prompt);
    assert_eq!(stdout(&output), format!("{photo}: {}\n", case.texts[0].text));
    // The whole conversation.
    let whole = format!("<|im_start|>User:<image>{prompt}<end_of_utterance>\nAssistant:");
    assert_eq!(stdout(&ask(&whole)), stdout(&output));
    let error = stderr(&ask("<image> or <image>")).to_owned();
    assert!(error.contains("has `<image>` more than once"), "{error}");
    let mut generator = Generator::load(
        case.path(),
        &Session::builder().device(Device::Cpu),
        &case.options(),
    )
    .unwrap();
    assert!(generator.tiling().is_some() && makes_texts(case.path()));
    let encoded = ndarray::Array3::zeros((1, 16, 32));
    let error = generator.start_encoded(encoded.view(), &[case.options()]);
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("tokens: of tiles are not taken"), "{error}");
}

/// Without a template, a prompt is the whole conversation.
#[test]
fn a_missing_template_is_named() {
    let case = &tiled()[1];
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(case.path()).unwrap() {
        let file = file.unwrap();
        if file.file_name() != "chat_template.jinja" {
            std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
    }
    let builder = Session::builder().device(Device::Cpu);
    let error = Generator::load(folder.path(), &builder, &case.options()).unwrap_err();
    assert!(
        error.to_string().contains("no chat template of SmolVLM"),
        "{error}"
    );
    let options = GenerateOptions {
        prompt: Some("<|im_start|>User:<image><end_of_utterance>\nAssistant:".into()),
        ..case.options()
    };
    let mut generator = Generator::load(folder.path(), &builder, &options).unwrap();
    let texts = generator
        .generate(&case.images()[..1], &options, &mut |_, _| {})
        .unwrap();
    assert_eq!(texts[0].tokens, case.texts[0].tokens);
}

/// A prompt of more tokens than a step computes has the text that its tokens have one by one.
#[test]
fn long_prompts_are_computed_in_parts() {
    let mut case = case("donut");
    let mut texts = Vec::new();
    for prompt in ["a", &"abcdefghijkl".repeat(3)] {
        case.prompt = Some(format!("<s_docvqa>{prompt}"));
        let mut generator = case.load(&Session::builder().device(Device::Cpu).batch(3));
        let made = generator
            .generate(&case.images(), &case.options(), &mut |_, _| {})
            .unwrap();
        assert_eq!((generator.pages().0, generator.vacant()), (0, 3));
        let tokens: Vec<&[u32]> = made.iter().map(|text| text.tokens.as_slice()).collect();
        let logits = generator.logits(&case.images(), case.prompt.as_deref(), &tokens);
        for (text, logits) in made.iter().zip(logits.unwrap()) {
            for (step, (&token, logits)) in text.tokens.iter().zip(logits.rows()).enumerate() {
                let best = logits
                    .iter()
                    .copied()
                    .enumerate()
                    .max_by(|a, b| a.1.total_cmp(&b.1));
                // The files force the end of a text of the maximum length.
                let best = if step + 1 == LENGTH { 2 } else { best.unwrap().0 };
                assert_eq!(token as usize, best, "{step} of {:?}", text.tokens);
            }
        }
        texts.push(made);
    }
    assert_ne!(texts[0], texts[1]);
}

#[test]
fn prompts_that_do_not_fit_are_refused() {
    let case = case("donut");
    let mut generator = case.load(&Session::builder().device(Device::Cpu));
    let image = &case.images()[..1];
    let mut error = |prompt: &str, max_tokens| {
        let options = GenerateOptions {
            max_tokens,
            prompt: Some(prompt.to_owned()),
            ..GenerateOptions::default()
        };
        let texts = generator.generate(image, &options, &mut |_, _| {});
        texts.unwrap_err().to_string()
    };
    assert!(error("", None).contains("prompt: is empty"));
    // A blank before the letters has a token.
    let long = error(&"a".repeat(64), None);
    assert!(long.contains("prompt: has 65 tokens"), "{long}");
    let long = error(&"a".repeat(50), Some(14));
    assert!(long.contains("14 are more than the 13"), "{long}");
    assert_eq!(generator.vacant(), generator.session().batch());
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

/// Texts are started, cancelled and stepped by hand. Each text is that of transformers, whatever is beside it.
#[test]
fn texts_enter_and_leave_between_steps() {
    let case = &cases()[0];
    let images = case.images();
    let mut generator = case.load(&Session::builder().device(Device::Cpu).batch(3));
    let detokenizer = generator.detokenizer();
    let options = |max_tokens| GenerateOptions {
        max_tokens: Some(max_tokens),
        ..GenerateOptions::default()
    };
    let pages = generator.pages().1;
    let mut running: HashMap<TextId, (usize, usize, TextStream, String)> = HashMap::new();
    let (mut random, mut finished, mut cancelled) = (1_u64, 0, 0);
    for number in 0.. {
        // Every number of texts enters, and about one text in thirty steps is cancelled.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bits = random >> 33;
        for _ in 0..bits as usize % (generator.vacant() + 1) {
            if number < 200 {
                let (index, length) = (bits as usize % images.len(), 1 + bits as usize % LENGTH);
                let ids = generator
                    .start(&images[index..=index], &[options(length)])
                    .unwrap();
                let stream = TextStream::new(detokenizer.clone());
                running.insert(ids[0], (index, length, stream, String::new()));
            }
        }
        if bits.is_multiple_of(30)
            && let Some(&id) = running.keys().min()
        {
            assert!(generator.cancel(id));
            assert!(!generator.cancel(id), "it has left");
            running.remove(&id);
            cancelled += 1;
        }
        assert_eq!(generator.running(), running.len());
        for Progress { text, event } in generator.step().unwrap() {
            let (index, length, stream, parts) = running.get_mut(&text).unwrap();
            match event {
                Event::Token(token) => parts.push_str(&stream.push(token).unwrap()),
                Event::Finished(generated) => {
                    let expected = &case.texts[*index].tokens;
                    assert_eq!(generated.tokens, expected[..expected.len().min(*length)]);
                    parts.push_str(&stream.finish().unwrap());
                    assert_eq!(*parts, generated.text);
                    running.remove(&text);
                    finished += 1;
                }
                Event::Failed(error) => panic!("{error}"),
            }
        }
        if number >= 200 && running.is_empty() {
            break;
        }
    }
    assert!(finished > 20 && cancelled > 3, "{finished} {cancelled}");
    assert_eq!((generator.pages(), generator.vacant()), ((0, pages), 3));
    let error = generator
        .start(&images[..1], &[options(40)])
        .unwrap_err()
        .to_string();
    assert!(error.contains("40 are more than the 39"), "{error}");
    let error = generator
        .start(&images[..4], &vec![options(1); 4])
        .unwrap_err()
        .to_string();
    assert!(error.contains("are 4, and 3 texts can be started"), "{error}");
    assert_eq!((generator.pages(), generator.vacant()), ((0, pages), 3));
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
    let mut error = |texts: &[&[u32]]| generator.logits(images, None, texts).unwrap_err().to_string();
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
        let options = GenerateOptions {
            max_tokens,
            ..GenerateOptions::default()
        };
        let generator = Generator::load(case.path(), &builder, &options).unwrap();
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
    assert!(makes_texts(cases()[0].path()) && !makes_texts(at("tests/golden/hf_vit")));
    assert!(!makes_texts("org/that-is-not-here"));
    // An encoder without its tokens has nothing to read.
    let options = GenerateOptions::default();
    let error = Generator::of_session(session, cases()[0].path(), &options)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("tokens: are no output"), "{error}");
    let error = Generator::load(at("tests/golden/hf_vit"), &builder, &options)
        .unwrap_err()
        .to_string();
    assert!(error.contains("\"vision-encoder-decoder\""), "{error}");
}

#[test]
fn the_command_line_continues_a_prompt() {
    let case = case("donut");
    let (model, photo) = (case.path(), at("tests/golden/images/photo.jpg"));
    let [model, photo] = [&model, &photo].map(|path| path.to_str().unwrap());
    let run = |prompt: &str, more: &[&str]| {
        let read = [
            "read",
            photo,
            "-m",
            model,
            "--max-tokens",
            "24",
            "--device",
            "cpu",
        ];
        hipvit([&read[..], &["--prompt", prompt], more].concat())
    };
    let prompt = case.prompt.as_deref().unwrap();
    let output = run(prompt, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), format!("{photo}: {}\n", case.texts[0].text));
    assert_eq!(stdout(&run(prompt, &["--stream"])), stdout(&output));
    let refused = run("", &[]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("prompt: is empty"));
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
    let streamed = run(&["--stream"]);
    assert_eq!(streamed.status.code(), Some(0), "{}", stderr(&streamed));
    assert_eq!(stdout(&streamed), stdout(&output));
    for more in [&[][..], &["--draft-model", model]] {
        let speculated = run(&[&["--speculate", "4"], more].concat());
        assert_eq!(stdout(&speculated), stdout(&output));
        let note = stderr(&speculated);
        assert!(
            note.contains(" tokens in each step of a text; ") && note.contains(" guessed tokens were right"),
            "{note}"
        );
    }
    let profile = ["profile", model, photo, "--max-tokens", "6", "--device", "cpu"];
    let profile = hipvit([&profile[..], &["--batch", "2", "--json"]].concat());
    let json: Value = serde_json::from_str(stdout(&profile)).unwrap();
    let of_token = &json["tokens"]["per_token"];
    let milliseconds = |name: &str| {
        let mut parts = of_token["parts"].as_array().unwrap().iter();
        parts.find(|part| part["name"] == name).unwrap()["elapsed_ms"]
            .as_f64()
            .unwrap()
    };
    assert_eq!((&json["batch"], &json["tokens"]["count"]), (&2.into(), &6.into()));
    for part in ["QKV", "attention", "FFN", "post-processing"] {
        assert!(milliseconds(part) > 0.0, "{part}: {json}");
    }
    for more in [&["--stream", "--json"][..], &["--stream", photo]] {
        let refused = run(more);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains("--stream prints the text of one image"));
    }
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
