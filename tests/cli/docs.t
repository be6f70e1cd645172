# Every option of --help is in the man page, and every option of the man page in a --help.
$ for c in ortho step explain plan train bench ckpt 'ckpt ls' 'ckpt verify' 'ckpt inspect' 'ckpt diff' 'ckpt convert' 'ckpt import' 'ckpt export'; do muonctl $c --help; done | grep -o -e '--[a-z][a-z-]*' | sort -u >help
$ sed 's/\\-/-/g' $DOCS/muonctl.1 | grep -o -e '--[a-z][a-z-]*' | grep -v -e --version | sort -u >man
$ diff help man
$ grep -c "libmuon $(muonctl --version | cut -d' ' -f2)\"" $DOCS/muonctl.1
1

# Every field of a group is in config.md; the library lists them when it does not know one.
$ muonctl bench ns:1x1@nothing=1 2>&1 | sed -n 's/.*known: //p' | tr -d , | tr ' ' '\n' >fields
$ test $(wc -l <fields) -gt 20
$ while read f; do grep -q "^| \`$f\` |" $DOCS/config.md || echo "$f is not in config.md"; done <fields

# The keys of the JSON result are in config.md.
$ tensors make p w:F32:2x2 && muonctl step --config $CONFIGS/minimal.json --params p --grads p --out out --json >line
$ sed 's/"phases".*//' line | grep -o '"[a-z_]*":' | tr -d '":' | while read k; do grep -q "^| .*\`$k\`" $DOCS/config.md || echo "$k is not in config.md"; done

# So are those of what ckpt prints, in the man page.
$ tensors save root 1 w.step:I64:-:1
$ (muonctl ckpt ls root --json; muonctl ckpt inspect root --json) | grep -o '"[a-z_0-9]*":' | tr -d '":' | sort -u | while read k; do grep -qw "$k" $DOCS/muonctl.1 || echo "$k is not in muonctl.1"; done

# Every example config is described, and every one described exists.
$ for f in $CONFIGS/*.json; do grep -qF "(../examples/configs/$(basename $f))" $DOCS/config.md || echo "$f is not in config.md"; done
$ grep -o 'examples/configs/[a-z]*.json' $DOCS/config.md | sort -u | while read f; do test -e $DOCS/../$f || echo "there is no $f"; done

# The excerpts in config.md are right.
$ excerpt() { awk -v n=$1 '/^```json/ { i++; if (i == n) print "{"; next } /^```/ { if (i == n) { print "}"; exit } next } i == n' $DOCS/config.md; }
$ tensors make p w:F32:4x4 && excerpt 1 >c.json && muonctl explain --config c.json --params p >log
$ tensors make p model.layers.0.attn.qkv.weight:F32:6144x2 model.layers.1.attn.qkv.weight:F32:6144x2 && excerpt 2 >c.json && muonctl explain --config c.json --params p >log
$ tensors make p l.experts.w:F32:4x8x8 l.attn:F32:8x8 l.norm:F32:8 lm_head:F32:64x32 && excerpt 3 >c.json && muonctl explain --config c.json --params p >log
