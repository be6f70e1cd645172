# Every matrix becomes orthogonal, whatever its shape; leading dims are a batch.
$ tensors make in a:F32:1x1 b:F32:1x7 c:F32:7x1 d:F32:5x9 e:F32:9x5 f:F32:6x6 g:F32:3x4x8 h:F32:2x2x8x3
$ muonctl ortho in out
8 tensors, 13 matrices, * s, * GFLOP/s (glob)
$ tensors show out
a F32 1x1
b F32 1x7
c F32 7x1
d F32 5x9
e F32 9x5
f F32 6x6
g F32 3x4x8
h F32 2x2x8x3
$ tensors orthogonal out 0.6

# The sign of a number is its orthogonal factor.
$ tensors make in p:F32:1x1:3 n:F32:1x1:-3e-20
$ muonctl ortho in out --coefficients deepseek_v4 >log
$ tensors values out p
1.00001
$ tensors values out n
-1.00001

# Ten steps of deepseek_v4 are as good as exact; so are twelve of polar_express.
$ tensors make in d:F32:5x9 e:F32:9x5 g:F32:3x4x8
$ muonctl ortho in out --coefficients deepseek_v4 >log && tensors orthogonal out 5e-3
$ muonctl ortho in out --coefficients polar_express --steps 12 >log && tensors orthogonal out 5e-3

# The options' defaults are what --help says.
$ muonctl ortho in plain >log
$ muonctl ortho in explicit --coefficients you --steps 5 --algorithm auto --eps 1e-7 --eps-mode relative --normalization frobenius --norm-scale 0 >log
$ cmp plain explicit
$ muonctl ortho in fewer --steps 2 >log
$ cmp -s plain fewer
? 1
$ muonctl ortho in other --eps-mode add --eps 1 >log
$ cmp -s plain other
? 1
$ muonctl ortho in other --norm-scale 1.5 >log
$ cmp -s plain other
? 1

# Ten steps end at the same place from the Frobenius and the Schatten-4 norm, and by rows at another one.
$ muonctl ortho in frobenius --coefficients deepseek_v4 >log
$ muonctl ortho in schatten4 --coefficients deepseek_v4 --normalization schatten4 >log && tensors orthogonal schatten4 5e-3
$ muonctl ortho in aol --coefficients deepseek_v4 --normalization aol >log && tensors orthogonal aol 5e-3
$ muonctl ortho in out --coefficients cubic5 --steps 6
2> muonctl: ortho: group 0: ns_steps is 6, but the cubics of cubic5 diverge after 5 steps
? 1

# All algorithms and backends compute the same polynomial.
$ for a in standard symmetric gram; do muonctl ortho in $a --algorithm $a >log; tensors diff standard $a | awk '$2 > 1e-4'; done
$ muonctl ortho in reference --backend reference >log && tensors diff plain reference | awk '$2 > 1e-4'

# A batch is its matrices one by one.
$ tensors make one g:F32:1x8x4 && tensors make two g:F32:2x8x4
$ muonctl ortho one one.out >log && muonctl ortho two two.out >log
$ tensors values one.out g >first && tensors values two.out g | cut -d' ' -f1-32 | cmp - first

# Zeros stay zeros.
$ tensors make in z:F32:4x6:zero zb:F32:2x3x3:zero
$ muonctl ortho in out >log
$ tensors values out z
0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
$ tensors values out zb
0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0

# Other float types are read, and everything is written as F32. No matrix: copied.
$ tensors make in a:BF16:3x4 b:F64:4x3 c:F16:2x2 bias:BF16:3:1.5 scale:F32:-:2 none:F32:0x4
$ muonctl ortho in out
3 tensors, 3 matrices, * s, * GFLOP/s (glob)
2> muonctl: ortho: note: tensors without a matrix, copied: 3
$ tensors show out
b F32 4x3
scale F32 -
none F32 0x4
a F32 3x4
c F32 2x2
bias F32 3
$ tensors values out bias
1.5 1.5 1.5
$ tensors values out scale
2

# The same bytes for any number of threads.
$ tensors make in a:F32:300x500 b:F32:9x64x96 c:F32:500x300
$ muonctl ortho in t1 --threads 1 >log && muonctl ortho in t2 --threads 2 >log && muonctl ortho in t5 --threads 5 >log
$ cmp t1 t2
$ cmp t1 t5

# OUT may be IN.
$ cp in same && muonctl ortho same same >log && cmp same t1

# An empty file is an empty result.
$ tensors make in
$ muonctl ortho in out
0 tensors, 0 matrices, * s, * GFLOP/s (glob)
