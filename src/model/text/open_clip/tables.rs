//! Data of ftfy 6.3.1, written by scripts/ftfy_tables.py.

/// Sequences of characters that are unlikely in a text that was decoded correctly.
#[rustfmt::skip]
pub(super) const BADNESS: &str = concat!(
    r#"[{c1}]|"#,
    r#"[{bad}{lower_accented}{upper_accented}{box}{start_punctuation}{end_punctuation}{currency}{numeric}{law}][{bad}]|"#,
    r#"[a-zA-Z][{lower_common}{upper_common}][{bad}]|"#,
    r#"[{bad}][{lower_accented}{upper_accented}{box}{start_punctuation}{end_punctuation}{currency}{numeric}{law}]|"#,
    r#"[{lower_accented}{lower_common}{box}{end_punctuation}{currency}{numeric}][{upper_accented}]|"#,
    r#"[{box}{end_punctuation}{currency}{numeric}][{lower_accented}]|"#,
    r#"[{lower_accented}{box}{end_punctuation}][{currency}]|"#,
    r#"[\s\x1c-\x1f][{upper_accented}][{currency}]|"#,
    r#"[{upper_accented}{box}][{numeric}{law}]|"#,
    r#"[{lower_accented}{upper_accented}{box}{currency}{end_punctuation}][{start_punctuation}][{numeric}]|"#,
    r#"[{lower_accented}{upper_accented}{currency}{numeric}{box}{law}][{end_punctuation}][{start_punctuation}]|"#,
    r#"[{currency}{numeric}{box}][{start_punctuation}]|"#,
    r#"[a-z][{upper_accented}][{start_punctuation}{currency}]|"#,
    r#"[{box}][{kaomoji}]|"#,
    r#"[{lower_accented}{upper_accented}{currency}{numeric}{start_punctuation}{end_punctuation}{law}][{box}]|"#,
    r#"[{box}][{end_punctuation}]|"#,
    r#"[{lower_accented}{upper_accented}][{start_punctuation}{end_punctuation}][\p{L}\p{N}_]|"#,
    r#"[Œœ][^A-Za-z]|"#,
    r#"[{upper_accented}]\x{b0}|"#,
    r#"[ÂÃÎÐ][\x{20ac}œŠš\x{a2}\x{a3}Ÿž\xa0\xad\x{ae}\x{a9}\x{b0}\x{b7}\x{bb}{start_punctuation}{end_punctuation}\x{2013}\x{2014}\x{b4}]|"#,
    r#"\x{d7}[²³]|"#,
    r#"[ØÙ][{common}{currency}{bad}{numeric}{start_punctuation}ŸŠ\x{ae}\x{b0}µ\x{bb}][ØÙ][{common}{currency}{bad}{numeric}{start_punctuation}ŸŠ\x{ae}\x{b0}µ\x{bb}]|"#,
    r#"à[²µ¹¼½¾]|"#,
    r#"\x{221a}[\x{b1}\x{2202}\x{2020}\x{2260}\x{ae}\x{2122}\x{b4}\x{2264}\x{2265}\x{a5}µø]|"#,
    r#"\x{2248}[\x{b0}\x{a2}]|"#,
    r#"\x{201a}Ä[ìîïòôúùû\x{2020}\x{b0}\x{a2}π]|"#,
    r#"\x{201a}[âó][àä\x{b0}ê]|"#,
    r#"вЂ|"#,
    r#"[ВГРС][{c1}{bad}{start_punctuation}{end_punctuation}{currency}\x{b0}µ][ВГРС]|"#,
    r#"ГўВЂВ.[A-Za-z ]|"#,
    r#"Ã[\xa0\x{a1}]|"#,
    r#"[a-z][\s\x1c-\x1f]?[ÃÂ][ ]|"#,
    r#"^[ÃÂ][ ]|"#,
    r#"[a-z.,?!{end_punctuation}]Â[ {start_punctuation}{end_punctuation}]|"#,
    r#"β\x{20ac}[\x{2122}\xa0Ά\xad\x{ae}\x{b0}]|"#,
    r#"[ΒΓΞΟ][{c1}{bad}{start_punctuation}{end_punctuation}{currency}\x{b0}][ΒΓΞΟ]|"#,
    r#"ā\x{20ac}"#,
);

/// Character sets that [`BADNESS`] refers to.
#[rustfmt::skip]
pub(super) const BADNESS_SETS: [(&str, &str); 14] = [
    ("{common}", r#"\x{a0}\x{ad}\x{b7}\x{b4}\x{2013}\x{2014}\x{2015}\x{2026}\x{2019}"#),
    ("{c1}", r#"\x{80}-\x{9f}"#),
    ("{bad}", r#"\x{a6}\x{a4}\x{a8}\x{ac}\x{af}\x{b8}ƒˆˇ\x{2d8}\x{2db}\x{2dc}\x{2020}\x{2021}\x{2030}\x{2310}\x{25ca}\x{fffd}ªº"#),
    ("{law}", r#"\x{b6}\x{a7}"#),
    ("{currency}", r#"\x{a2}\x{a3}\x{a5}\x{20a7}\x{20ac}"#),
    ("{start_punctuation}", r#"\x{a1}\x{ab}\x{bf}\x{a9}\x{384}\x{385}\x{2018}\x{201a}\x{201c}\x{201e}\x{2022}\x{2039}\x{f8ff}"#),
    ("{end_punctuation}", r#"\x{ae}\x{bb}\x{2dd}\x{201d}\x{203a}\x{2122}"#),
    ("{numeric}", r#"²³¹\x{b1}¼½¾\x{d7}µ\x{f7}\x{2044}\x{2202}\x{2206}\x{220f}\x{2211}\x{221a}\x{221e}\x{2229}\x{222b}\x{2248}\x{2260}\x{2261}\x{2264}\x{2265}\x{2116}"#),
    ("{kaomoji}", r#"Ò-ÖÙ-Üò-öø-üŐŌŪŲ\x{b0}"#),
    ("{upper_accented}", r#"À-ÑØÜÝĂĀĄĆČĎĐĘĚĒĖĞĢİĪĶĹĽŁĻŃŇŅŒŘŚŞŠŢŤŮŰŸŹŻŽҐ"#),
    ("{lower_accented}", r#"ßà-ñăąāćčďđęěēėğģįīķĺľłļœŕśşšťüźżžґﬁﬂ"#),
    ("{upper_common}", r#"ÞΑ-ΩΆΈΉΊΌΎΏΪΫЁ-Я"#),
    ("{lower_common}", r#"α-ωάέήίΰа-џ"#),
    ("{box}", r#"\x{2502}\x{250c}\x{2510}\x{2518}\x{251c}\x{2524}\x{252c}\x{253c}\x{2550}-\x{256c}\x{2580}\x{2584}\x{2588}\x{258c}\x{2590}\x{2591}\x{2592}\x{2593}"#),
];

/// Sequences that look like UTF-8 that was decoded as a single-byte encoding.
#[rustfmt::skip]
pub(super) const UTF8_DETECTOR: &str = concat!(
    r#"(?<![{utf8_continuation_strict}])([{utf8_first_of_2}][{utf8_continuation}]|"#,
    r#"[{utf8_first_of_3}][{utf8_continuation}]{2}|"#,
    r#"[{utf8_first_of_4}][{utf8_continuation}]{3})+"#,
);

/// Character sets that [`UTF8_DETECTOR`] refers to.
#[rustfmt::skip]
pub(super) const UTF8_DETECTOR_SETS: [(&str, &str); 5] = [
    ("{utf8_first_of_2}", r#"ĂÂÄĀÅÃÆĆČÇĎĐÉĚÊËĖÈĒĘÐĞĢÍÎÏİÌĪĶĹĻŁŃŇŅÑÓÔÖŐÒŌØÕŘŚŠŞŢÞÚÛÜŰÙŪŲŮÝŹŽŻß\x{d7}ΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩΪΫάέήίВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯ"#),
    ("{utf8_first_of_3}", r#"áăâäàāąåãæćčçďéěêëėèēęęģíîïìīįķĺļŕźΰαβγδεζηθικλμνξοабвгдежзийклмноп"#),
    ("{utf8_first_of_4}", r#"đðğóšπσру"#),
    ("{utf8_continuation}", r#"\x{80}-\x{bf} ĄÆĽŁØŖŚŠŞŤŸŹŽŻŒąæƒľłøŗśšşťźžżœˆˇ\x{2d8}\x{2db}\x{2dc}\x{2dd}\x{384}\x{385}ΆΈΉΊΌΎΏЁЂЃЄЅІЇЈЉЊЋЌЎЏёђѓєѕіїјљњћќўџҐґ\x{2013}\x{2014}\x{2015}\x{2018}\x{2019}\x{201a}\x{201c}\x{201d}\x{201e}\x{2020}\x{2021}\x{2022}\x{2026}\x{2030}\x{2039}\x{203a}\x{20ac}\x{2116}\x{2122}"#),
    ("{utf8_continuation_strict}", r#"\x{80}-\x{bf}ĄÆĽŁØŖŚŠŞŤŸŹŽŻŒąæƒľłøŗśšşťźžżœˆˇ\x{2d8}\x{2db}\x{2dc}\x{2dd}\x{384}\x{385}ΆΈΉΊΌΎΏЁЂЃЄЅІЇЈЉЊЋЌЎЏёђѓєѕіїјљњћќўџҐґ\x{2020}\x{2021}\x{2030}\x{2039}\x{203a}\x{20ac}\x{2116}\x{2122}"#),
];

/// Encodings that are tried for a text, in order, with the characters of the bytes from 0x80 on.
#[rustfmt::skip]
pub(super) const ENCODINGS: [(&str, &str); 10] = [
    ("latin-1", "\u{80}\u{81}\u{82}\u{83}\u{84}\u{85}\u{86}\u{87}\u{88}\u{89}\u{8a}\u{8b}\u{8c}\u{8d}\u{8e}\u{8f}\u{90}\u{91}\u{92}\u{93}\u{94}\u{95}\u{96}\u{97}\u{98}\u{99}\u{9a}\u{9b}\u{9c}\u{9d}\u{9e}\u{9f}\u{a0}\u{a1}\u{a2}\u{a3}\u{a4}\u{a5}\u{a6}\u{a7}\u{a8}\u{a9}ª\u{ab}\u{ac}\u{ad}\u{ae}\u{af}\u{b0}\u{b1}²³\u{b4}µ\u{b6}\u{b7}\u{b8}¹º\u{bb}¼½¾\u{bf}ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖ\u{d7}ØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõö\u{f7}øùúûüýþÿ"),
    ("sloppy-windows-1252", "\u{20ac}\u{81}\u{201a}ƒ\u{201e}\u{2026}\u{2020}\u{2021}ˆ\u{2030}Š\u{2039}Œ\u{8d}Ž\u{8f}\u{90}\u{2018}\u{2019}\u{201c}\u{201d}\u{2022}\u{2013}\u{2014}\u{2dc}\u{2122}š\u{203a}œ\u{9d}žŸ\u{a0}\u{a1}\u{a2}\u{a3}\u{a4}\u{a5}\u{a6}\u{a7}\u{a8}\u{a9}ª\u{ab}\u{ac}\u{ad}\u{ae}\u{af}\u{b0}\u{b1}²³\u{b4}µ\u{b6}\u{b7}\u{b8}¹º\u{bb}¼½¾\u{bf}ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖ\u{d7}ØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõö\u{f7}øùúûüýþÿ"),
    ("sloppy-windows-1251", "ЂЃ\u{201a}ѓ\u{201e}\u{2026}\u{2020}\u{2021}\u{20ac}\u{2030}Љ\u{2039}ЊЌЋЏђ\u{2018}\u{2019}\u{201c}\u{201d}\u{2022}\u{2013}\u{2014}\u{98}\u{2122}љ\u{203a}њќћџ\u{a0}ЎўЈ\u{a4}Ґ\u{a6}\u{a7}Ё\u{a9}Є\u{ab}\u{ac}\u{ad}\u{ae}Ї\u{b0}\u{b1}Ііґµ\u{b6}\u{b7}ё\u{2116}є\u{bb}јЅѕїАБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯабвгдежзийклмнопрстуфхцчшщъыьэюя"),
    ("sloppy-windows-1250", "\u{20ac}\u{81}\u{201a}\u{83}\u{201e}\u{2026}\u{2020}\u{2021}\u{88}\u{2030}Š\u{2039}ŚŤŽŹ\u{90}\u{2018}\u{2019}\u{201c}\u{201d}\u{2022}\u{2013}\u{2014}\u{98}\u{2122}š\u{203a}śťžź\u{a0}ˇ\u{2d8}Ł\u{a4}Ą\u{a6}\u{a7}\u{a8}\u{a9}Ş\u{ab}\u{ac}\u{ad}\u{ae}Ż\u{b0}\u{b1}\u{2db}ł\u{b4}µ\u{b6}\u{b7}\u{b8}ąş\u{bb}Ľ\u{2dd}ľżŔÁÂĂÄĹĆÇČÉĘËĚÍÎĎĐŃŇÓÔŐÖ\u{d7}ŘŮÚŰÜÝŢßŕáâăäĺćçčéęëěíîďđńňóôőö\u{f7}řůúűüýţ\u{2d9}"),
    ("sloppy-windows-1253", "\u{20ac}\u{81}\u{201a}ƒ\u{201e}\u{2026}\u{2020}\u{2021}\u{88}\u{2030}\u{8a}\u{2039}\u{8c}\u{8d}\u{8e}\u{8f}\u{90}\u{2018}\u{2019}\u{201c}\u{201d}\u{2022}\u{2013}\u{2014}\u{98}\u{2122}\u{9a}\u{203a}\u{9c}\u{9d}\u{9e}\u{9f}\u{a0}\u{385}Ά\u{a3}\u{a4}\u{a5}\u{a6}\u{a7}\u{a8}\u{a9}ª\u{ab}\u{ac}\u{ad}\u{ae}\u{2015}\u{b0}\u{b1}²³\u{384}µ\u{b6}\u{b7}ΈΉΊ\u{bb}Ό½ΎΏΐΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡÒΣΤΥΦΧΨΩΪΫάέήίΰαβγδεζηθικλμνξοπρςστυφχψωϊϋόύώÿ"),
    ("sloppy-windows-1254", "\u{20ac}\u{81}\u{201a}ƒ\u{201e}\u{2026}\u{2020}\u{2021}ˆ\u{2030}Š\u{2039}Œ\u{8d}\u{8e}\u{8f}\u{90}\u{2018}\u{2019}\u{201c}\u{201d}\u{2022}\u{2013}\u{2014}\u{2dc}\u{2122}š\u{203a}œ\u{9d}\u{9e}Ÿ\u{a0}\u{a1}\u{a2}\u{a3}\u{a4}\u{a5}\u{a6}\u{a7}\u{a8}\u{a9}ª\u{ab}\u{ac}\u{ad}\u{ae}\u{af}\u{b0}\u{b1}²³\u{b4}µ\u{b6}\u{b7}\u{b8}¹º\u{bb}¼½¾\u{bf}ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏĞÑÒÓÔÕÖ\u{d7}ØÙÚÛÜİŞßàáâãäåæçèéêëìíîïğñòóôõö\u{f7}øùúûüışÿ"),
    ("sloppy-windows-1257", "\u{20ac}\u{81}\u{201a}\u{83}\u{201e}\u{2026}\u{2020}\u{2021}\u{88}\u{2030}\u{8a}\u{2039}\u{8c}\u{a8}ˇ\u{b8}\u{90}\u{2018}\u{2019}\u{201c}\u{201d}\u{2022}\u{2013}\u{2014}\u{98}\u{2122}\u{9a}\u{203a}\u{9c}\u{af}\u{2db}\u{9f}\u{a0}\u{a1}\u{a2}\u{a3}\u{a4}\u{a5}\u{a6}\u{a7}Ø\u{a9}Ŗ\u{ab}\u{ac}\u{ad}\u{ae}Æ\u{b0}\u{b1}²³\u{b4}µ\u{b6}\u{b7}ø¹ŗ\u{bb}¼½¾æĄĮĀĆÄÅĘĒČÉŹĖĢĶĪĻŠŃŅÓŌÕÖ\u{d7}ŲŁŚŪÜŻŽßąįāćäåęēčéźėģķīļšńņóōõö\u{f7}ųłśūüżž\u{2d9}"),
    ("iso-8859-2", "\u{80}\u{81}\u{82}\u{83}\u{84}\u{85}\u{86}\u{87}\u{88}\u{89}\u{8a}\u{8b}\u{8c}\u{8d}\u{8e}\u{8f}\u{90}\u{91}\u{92}\u{93}\u{94}\u{95}\u{96}\u{97}\u{98}\u{99}\u{9a}\u{9b}\u{9c}\u{9d}\u{9e}\u{9f}\u{a0}Ą\u{2d8}Ł\u{a4}ĽŚ\u{a7}\u{a8}ŠŞŤŹ\u{ad}ŽŻ\u{b0}ą\u{2db}ł\u{b4}ľśˇ\u{b8}šşťź\u{2dd}žżŔÁÂĂÄĹĆÇČÉĘËĚÍÎĎĐŃŇÓÔŐÖ\u{d7}ŘŮÚŰÜÝŢßŕáâăäĺćçčéęëěíîďđńňóôőö\u{f7}řůúűüýţ\u{2d9}"),
    ("macroman", "ÄÅÇÉÑÖÜáàâäãåçéèêëíìîïñóòôöõúùûü\u{2020}\u{b0}\u{a2}\u{a3}\u{a7}\u{2022}\u{b6}ß\u{ae}\u{a9}\u{2122}\u{b4}\u{a8}\u{2260}ÆØ\u{221e}\u{b1}\u{2264}\u{2265}\u{a5}µ\u{2202}\u{2211}\u{220f}π\u{222b}ªºΩæø\u{bf}\u{a1}\u{ac}\u{221a}ƒ\u{2248}\u{2206}\u{ab}\u{bb}\u{2026}\u{a0}ÀÃÕŒœ\u{2013}\u{2014}\u{201c}\u{201d}\u{2018}\u{2019}\u{f7}\u{25ca}ÿŸ\u{2044}\u{20ac}\u{2039}\u{203a}ﬁﬂ\u{2021}\u{b7}\u{201a}\u{201e}\u{2030}ÂÊÁËÈÍÎÏÌÓÔ\u{f8ff}ÒÚÛÙıˆ\u{2dc}\u{af}\u{2d8}\u{2d9}\u{2da}\u{b8}\u{2dd}\u{2db}ˇ"),
    ("cp437", "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ\u{a2}\u{a3}\u{a5}\u{20a7}ƒáíóúñÑªº\u{bf}\u{2310}\u{ac}½¼\u{a1}\u{ab}\u{bb}\u{2591}\u{2592}\u{2593}\u{2502}\u{2524}\u{2561}\u{2562}\u{2556}\u{2555}\u{2563}\u{2551}\u{2557}\u{255d}\u{255c}\u{255b}\u{2510}\u{2514}\u{2534}\u{252c}\u{251c}\u{2500}\u{253c}\u{255e}\u{255f}\u{255a}\u{2554}\u{2569}\u{2566}\u{2560}\u{2550}\u{256c}\u{2567}\u{2568}\u{2564}\u{2565}\u{2559}\u{2558}\u{2552}\u{2553}\u{256b}\u{256a}\u{2518}\u{250c}\u{2588}\u{2584}\u{258c}\u{2590}\u{2580}αßΓπΣσµτΦΘΩδ\u{221e}φε\u{2229}\u{2261}\u{b1}\u{2265}\u{2264}\u{2320}\u{2321}\u{f7}\u{2248}\u{b0}\u{2219}\u{b7}\u{221a}ⁿ²\u{25a0}\u{a0}"),
];

/// Characters of the bytes from 0x80 on in Windows-1252, with those of Latin-1 where it has none.
pub(super) const WINDOWS_1252: &str = ENCODINGS[1].1;

/// Ligatures of Latin letters, and their letters.
#[rustfmt::skip]
pub(super) const LIGATURES: [(char, &str); 22] = [
    ('Ĳ', "IJ"),
    ('ĳ', "ij"),
    ('ŉ', "ʼn"),
    ('Ǳ', "DZ"),
    ('ǲ', "Dz"),
    ('ǳ', "dz"),
    ('Ǆ', "DŽ"),
    ('ǅ', "Dž"),
    ('ǆ', "dž"),
    ('Ǉ', "LJ"),
    ('ǈ', "Lj"),
    ('ǉ', "lj"),
    ('Ǌ', "NJ"),
    ('ǋ', "Nj"),
    ('ǌ', "nj"),
    ('ﬀ', "ff"),
    ('ﬁ', "fi"),
    ('ﬂ', "fl"),
    ('ﬃ', "ffi"),
    ('ﬄ', "ffl"),
    ('ﬅ', "ſt"),
    ('ﬆ', "st"),
];
