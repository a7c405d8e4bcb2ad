/* Training steps of MLPs, of chains of linear layers and of plain CNNs, lane by lane: forth, back and a masked Adam, so that all of a lane stays in a core's cache;
   and what trained ones answer.

   A lane's numbers depend on that lane alone, never on how lanes are dealt to calls, threads or processes. Activations
   are feature-major, h[H][P]: P is the batch, filled up to whole vectors with columns of zero weight. `layout.py` has
   the same structs, field by field. */

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vectors.h"
#include "convolutions.h"
#include "recurrent.h"

enum { DEEPEST = 8 }; /* layers of a chain, each of which has a weight and a bias of its own, from LAYERS on */
enum { WEIGHT, BIAS, STRUCTURE, HEAD, HEAD_BIAS, LAYERS, TENSORS = LAYERS + 2 * DEEPEST };
enum { FORTH = 1, MOVE = 2, SQUARES = 4 };    /* find gradients; take the step; sum squares of each image's gradients */
enum { NO_DROPOUT, BITS, UNIFORM, GIVEN };    /* where dropout masks come from */

typedef struct {
    i64 lanes, apart, width, depth, batch, classes, tasks, initial, basis;
    i64 read;                   /* how many numbers a head reads */
    i64 side, channels, bytes;  /* of images that go through convolutions, bytes or floats; 0: there are none */
    i64 chain;                  /* does each depth have a layer of its own? */
    i64 wide[DEEPEST + 1];      /* Then how many numbers go into each, and come out of the last, */
    i64 bends[DEEPEST];         /* and is there a ReLU behind it? */
    const float *scaling;       /* of images: their peak, and of each channel its mean and its spread */
    double rate, beta1, beta2, epsilon;
    float *value[TENSORS], *mean[TENSORS], *var[TENSORS]; /* [L][units][size]; a lane is every `apart`-th row */
    i64 *steps[TENSORS];                                  /* [L][units] */
    i64 units[TENSORS], size[TENSORS];
} Net;

typedef struct {
    const void *x;              /* [L][n][...] or, where there are rows, [N][...] of all lanes */
    const void *y;              /* [L][n] labels, or [L][n][K] numbers */
    const i64 *task, *rows;     /* [L][n]; [L][n] of x, or none */
    i64 x_lane, y_lane, task_lane, rows_lane;
    i64 last;                   /* the number of the first image behind these */
} Images;

enum { PARTS = 3, MOST = 256 }; /* parts of what is learned from; threads */

typedef struct {
    Images images[PARTS];       /* what there is to learn from, one part behind the other */
    const i64 *index;           /* [L][B] numbers of images; or none: the first B */
    const float *weight;        /* [L][B] */
    i64 index_lane, weight_lane;
    i64 numbers;                /* are y numbers? */
    i64 whole;                  /* the task of the whole batch; -1: each image has its own */
    i64 mixes;                  /* every depth mixes modules; else it has one */
    i64 modules, counted;       /* modules that are computed, slots that take part in the softmax */
    const i64 *choice;          /* [L][initial][D] the module of an initial task at each depth; none: module k at depth k */
    const i64 *place;           /* [L][counted] */
    const uint8_t *takes, *shows, *known; /* [L][counted] in the softmax, and counts; [L][T][K] outputs that count */
    i64 choice_lane, place_lane, takes_lane, shows_lane, known_lane, known_task;
    i64 first[TENSORS], last[TENSORS], across; /* the units that train; of a structure's slots the first `across` */
    const uint8_t *active[TENSORS];            /* [L][last - first]; none: all */
    i64 active_lane[TENSORS];
    i64 present;                /* do only heads with an image in the batch train? */
    i64 drops, plain, own;      /* masks from where; modules without dropout; modules whose masks are of `key` */
    double dropout;
    const uint64_t *key, *further; /* [L][2] of the generators */
    i64 word, further_word;        /* what they have drawn before, in words of 32 bits */
    const uint8_t *off;            /* [L] lanes without dropout */
    const float *const *masks;     /* of each depth, [L][modules - plain][H][B] */
    const i64 *masks_lane;
    float *gradient[TENSORS];      /* [L][last - first][size]: to find, or found */
} Step;

/* ---- random numbers: Philox 4x64 of ten rounds (Salmon et al. 2011), in numpy's order --------------------------- */

INLINE void block(uint64_t key0, uint64_t key1, uint64_t number, uint64_t out[4]) {
    uint64_t c0 = number + 1, c1 = 0, c2 = 0, c3 = 0; /* numpy counts up before it draws */
    for (int round = 0; round < 10; round++) {
        unsigned __int128 a = (unsigned __int128)0xD2E7470EE14C6C93ULL * c0;
        unsigned __int128 b = (unsigned __int128)0xCA5A826395121157ULL * c2;
        c0 = (uint64_t)(b >> 64) ^ c1 ^ key0;
        c2 = (uint64_t)(a >> 64) ^ c3 ^ key1;
        c1 = (uint64_t)b;
        c3 = (uint64_t)a;
        key0 += 0x9E3779B97F4A7C15ULL;
        key1 += 0xBB67AE8584CAA73BULL;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Words of 32 bits of a generator, from its `word`-th on. */
APART void words(const uint64_t *key, i64 word, i64 count, uint32_t *out) {
    i64 at = 0;
    uint64_t drawn[4];
    for (i64 number = word / 8; at < count; number++) {
        block(key[0], key[1], (uint64_t)number, drawn);
        for (i64 i = at ? 0 : word % 8; i < 8 && at < count; i++) out[at++] = (uint32_t)(drawn[i / 2] >> (i % 2 * 32));
    }
}

typedef struct {
    const uint64_t *key;
    i64 word;
    uint64_t drawn[4];
} Bits;

/* The next word of a generator. */
INLINE uint32_t next_word(Bits *bits) {
    if (bits->word % 8 == 0) block(bits->key[0], bits->key[1], (uint64_t)(bits->word / 8), bits->drawn);
    i64 at = bits->word++ % 8;
    return (uint32_t)(bits->drawn[at / 2] >> (at % 2 * 32));
}

/* A number from 0 to `last`, as numpy draws it where it shuffles: as many bits as that has, until they are not more. */
INLINE uint32_t up_to(Bits *bits, uint32_t last) {
    uint32_t mask = UINT32_MAX >> __builtin_clz(last), found;
    while ((found = next_word(bits) & mask) > last) continue;
    return found;
}

/* Of every lane, by generators key[L][2], the numbers 0 to size - 1 in the order of numpy's `permutation`, into the
   first places of order[L][room], and ones into real[L][room], which are zeros before; `again`: one such pass behind the
   other until there is no room. Gives 0, 1 where there is no memory, or 2 where an index lies outside. */
int shoal_orders(const uint64_t *key, const i64 *sizes, i64 lanes, i64 room, int again, i64 *order, float *real) {
    i64 longest = 1;
    for (i64 l = 0; l < lanes; l++) longest = sizes[l] > longest ? sizes[l] : longest;
    i64 *row = malloc(8 * longest);
    if (!row) return 1;
    for (i64 l = 0; l < lanes; l++) {
        Bits bits = {key + 2 * l, 0, {0}};
        for (i64 at = 0, size = sizes[l]; size && at < room; at += size) {
            for (i64 i = 0; i < size; i++) row[i] = i;
            for (i64 i = size - 1; i > 0; i--) {
                i64 j = up_to(&bits, (uint32_t)i), held = row[i];
                row[i] = row[j], row[j] = held;
            }
            i64 count = size < room - at ? size : room - at;
            memcpy(order + l * room + at, row, 8 * count);
            for (i64 i = 0; i < count; i++) real[l * room + at + i] = 1;
            if (!again) break;
        }
    }
    free(row);
    return 0;
}

/* ---- a lane's scratch ------------------------------------------------------------------------------------------- */

typedef struct {
    i64 P, F;            /* the batch and what a head reads, in whole vectors */
    float *x, *xT;       /* [H][P] of the images; [B][F] */
    float *hidden;       /* [D][H][P] what comes out of each depth */
    float *turned;       /* [B][F] */
    float *outs;         /* [D][modules][H][P], mixed */
    float *slope, *next, *gate; /* [H][P] */
    float *gates;        /* [D][modules that train][H][P], mixed, for squares */
    float *share;        /* [D][modules][P], mixed */
    float *pulls;        /* [modules][P] */
    float *softs;        /* [tasks][counted][D] */
    float *taken;        /* [tasks][counted][D] */
    float *rows;         /* [R][H] of heads */
    float *rows_bias;    /* [R] */
    float *logits, *pull;/* [R][P] */
    float *wide;         /* [max(R, H)][F] */
    float *part;         /* [K][P] */
    float *weight;       /* [P] */
    float *gradient[TENSORS];
    uint8_t *bits;       /* [D][modules - plain][H][P / 8] */
    uint32_t *drawn;
    i64 *task, *rank;    /* [P] of each image: its task, and the number of that among those present; [T] of each task */
    i64 *here;           /* [T] tasks that are present */
    const Images **from; /* [P] of each image: the part that it is in, */
    i64 *at;             /* [P] and where there */
    i64 present;
    uint8_t *touched[TENSORS];
    uint8_t *runs;       /* [D][modules] */
    /* Of convolutions. A frame is what frames an image. */
    i64 modules;         /* the most that are computed in a step */
    float *seen;         /* [B] frames of images */
    float *frames;       /* of each depth [modules][B] frames of what comes out of a module */
    float *reads;        /* of each depth [B] frames of what has been mixed */
    float *taps, *first_taps, *rows_of; /* [units] kernels by tap, those of the first depth too, and by row */
    float *sums;         /* [modules that train] gradients by row, those of the first depth too, and of biases */
    float *z, *top, *one, *other, *settled;
    Pull *pulls_of;
    int32_t *count;
    uint8_t *packed;     /* [units] */
} Lane;

/* Pixels in a row of what goes into a depth of convolutions. */
INLINE i64 side_of(const Net *net, i64 k) { return net->side >> k; }
/* How many numbers of an image come out of a depth, go into it, and come out of all before it. */
INLINE i64 numbers_of(const Net *net, i64 k) {
    if (net->chain) return net->wide[k + 1];
    return net->side ? net->width * side_of(net, k + 1) * side_of(net, k + 1) : net->width;
}
INLINE i64 into(const Net *net, i64 k) { return net->chain ? net->wide[k] : net->width; }
static i64 before(const Net *net, i64 k) {
    i64 total = 0;
    for (i64 i = 0; i < k; i++) total += numbers_of(net, i);
    return total;
}
/* The frame of what comes out of a depth, and all those before it. */
INLINE i64 frame_of(const Net *net, i64 k) { return framed(side_of(net, k + 1), net->width); }
static i64 frames_before(const Net *net, i64 k) {
    i64 total = 0;
    for (i64 i = 0; i < k; i++) total += frame_of(net, i);
    return total;
}
INLINE Shape shape_of(const Net *net, i64 k) {
    return (Shape){side_of(net, k), k ? net->width : net->channels, net->width};
}
/* Sums that belong to a module that trains. */
INLINE i64 sums_of(const Net *net) {
    return net->width * (SPAN * span(net->width) + SPAN * span(net->channels)) + filled(net->width);
}

static i64 most(i64 a, i64 b) { return a > b ? a : b; }

/* Lays a lane's scratch out from `base` on, and tells how many bytes it is. */
static i64 laid(const Net *net, const Step *steps, i64 count, int mode, Lane *s, char *base) {
    i64 H = net->read, D = net->depth, B = net->batch, P = filled(B), F = filled(H), K = net->classes;
    i64 tasks = net->tasks, rows = net->units[HEAD] * K, C = net->width, U = net->units[WEIGHT], all_ = before(net, D);
    i64 images = net->side != 0, chains = !images, mixes = 0, first = into(net, 0), widest = H;
    i64 modules = 0, counted = 0, drawn = 0, parts[TENSORS] = {0};
    for (i64 i = 0; i < count; i++) {
        const Step *step = steps + i;
        modules = most(modules, step->mixes ? step->modules : 1);
        counted = most(counted, step->mixes ? step->counted : 0);
        drawn = most(drawn, step->drops == UNIFORM ? modules * all_ * B : 0);
        mixes |= step->mixes != 0;
        for (int t = 0; t < TENSORS; t++) parts[t] = most(parts[t], step->last[t] - step->first[t]);
    }
    for (i64 k = 0; k < D && chains; k++) widest = most(widest, numbers_of(net, k));
    i64 total = 0;
    s->P = P, s->F = F, s->modules = modules;
#define FLOATS(name, numbers)                                                                                          \
    s->name = (float *)(base + total);                                                                                 \
    total += ((numbers) * 4 + 127) / 64 * 64
#define OTHERS(name, type, numbers)                                                                                    \
    s->name = (type *)(base + total);                                                                                  \
    total += ((i64)sizeof(type) * (numbers) + 127) / 64 * 64
    FLOATS(x, (images ? net->channels * net->side * net->side : first) * P);
    FLOATS(xT, chains * B * filled(first));
    FLOATS(hidden, all_ * P);
    FLOATS(turned, B * filled(most(widest, chains * first)));
    FLOATS(outs, chains * D * modules * H * P);
    FLOATS(slope, widest * P);
    FLOATS(next, chains * widest * P);
    FLOATS(gate, chains * widest * P);
    FLOATS(gates, chains && mode & SQUARES ? D * parts[WEIGHT] * H * P : 0);
    FLOATS(share, D * modules * P);
    FLOATS(pulls, modules * P);
    FLOATS(softs, tasks * counted * D);
    FLOATS(taken, tasks * counted * D);
    FLOATS(rows, rows * H);
    FLOATS(rows_bias, rows);
    FLOATS(logits, rows * P);
    FLOATS(pull, rows * P);
    FLOATS(wide, most(rows, widest) * filled(most(widest, chains * first)));
    FLOATS(part, K * P);
    FLOATS(weight, P);
    for (int t = 0; t < TENSORS; t++) {
        FLOATS(gradient[t], parts[t] * net->size[t]);
        OTHERS(touched[t], uint8_t, parts[t]);
    }
    OTHERS(bits, uint8_t, all_ * modules * (P / 8 + 1));
    OTHERS(drawn, uint32_t, most(drawn, all_ * modules * B / 32 + 4));
    OTHERS(task, i64, P);
    OTHERS(rank, i64, tasks);
    OTHERS(here, i64, tasks);
    OTHERS(from, const Images *, P);
    OTHERS(at, i64, P);
    OTHERS(runs, uint8_t, D * modules);
    if (images) {
        i64 whole = frames_before(net, D), kernel = TAPS * C * C;
        FLOATS(seen, B * framed(net->side, net->channels));
        FLOATS(frames, modules * B * whole);
        FLOATS(reads, mixes * B * whole);
        FLOATS(taps, U * kernel);
        FLOATS(first_taps, U * TAPS * C * net->channels);
        FLOATS(rows_of, U * C * SPAN * span(C));
        FLOATS(sums, parts[WEIGHT] * sums_of(net));
        FLOATS(z, 5 * C * P);
        FLOATS(top, H * P);
        FLOATS(one, frame_of(net, 0));
        FLOATS(other, frame_of(net, 0));
        FLOATS(settled, mode & SQUARES ? kernel : 0);
        OTHERS(pulls_of, Pull, numbers_of(net, 0));
        OTHERS(count, int32_t, C);
        OTHERS(packed, uint8_t, U);
    }
    return total;
}

/* ---- dropout ---------------------------------------------------------------------------------------------------- */

/* Eight rows of eight bits as columns. */
INLINE uint64_t crossed(uint64_t x) {
    uint64_t t = (x ^ x >> 7) & 0x00AA00AA00AA00AAULL;
    x ^= t ^ t << 7;
    t = (x ^ x >> 14) & 0x0000CCCC0000CCCCULL;
    x ^= t ^ t << 14;
    t = (x ^ x >> 28) & 0x00000000F0F0F0F0ULL;
    return x ^ t ^ t << 28;
}

/* Eight bits from the `bit`-th on, highest bit first. */
INLINE uint8_t eight(const uint8_t *from, i64 bit) {
    return (uint8_t)((from[bit / 8] << 8 | from[bit / 8 + 1]) >> (8 - bit % 8));
}

/* Bits from `from`, `count` rows of B after the `skip`-th, to rows that begin with a whole byte, highest bit first. */
static void spread(const uint8_t *from, i64 skip, i64 count, i64 B, uint8_t *to, i64 stride) {
    if (B % 8 == 0 && skip % 8 == 0) {
        for (i64 i = 0; i < count; i++) memcpy(to + i * stride, from + skip / 8 + i * (B / 8), B / 8);
        return;
    }
    for (i64 i = 0; i < count; i++)
        for (i64 j = 0; j < B; j += 8) {
            i64 bit = skip + i * B + j;
            to[i * stride + j / 8] = eight(from, bit);
        }
}

/* Masks of convolutions, drawn image by image, [B][modules][channels][pixels] of each depth, to rows of images. */
static void draw_frames(const Net *net, const Step *step, Lane *s, const uint64_t *key, i64 word, i64 first, i64 last,
                        i64 every) {
    i64 B = net->batch, C = net->width, D = net->depth, count = last - first, stride = s->P / 8 + 1, from = 0;
    i64 total = count * B * before(net, D), bits = step->drops == BITS;
    words(key, word, bits ? (total + 31) / 32 : total, s->drawn);
    if (bits) s->drawn[(total + 31) / 32] = 0;
    float rate = (float)step->dropout;
    for (i64 k = 0; k < D; k++) {
        i64 n = numbers_of(net, k), room = n / C;
        uint8_t *to = s->bits + (before(net, k) * every + first * n) * stride;
        if (!bits) memset(to, 0, count * n * stride);
        for (i64 m = 0; m < count; m++, to += n * stride)
            for (i64 b = 0; b < B; b += 8)
                for (i64 e = 0; e < n; e += 8) {
                    uint64_t block = 0;
                    for (i64 q = 0; q < 8; q++) {
                        uint8_t row = 0;
                        i64 at = from + ((b + q) * count + m) * n + e;
                        if (b + q < B && bits) row = eight((const uint8_t *)s->drawn, at);
                        if (b + q < B && !bits)
                            for (i64 p = 0; p < 8 && e + p < n; p++)
                                row |= (uint8_t)(((float)(s->drawn[at + p] >> 8) * 0x1p-24f >= rate) << (7 - p));
                        block = block << 8 | row;
                    }
                    block = crossed(block);
                    for (i64 p = 0; p < 8 && e + p < n; p++)
                        to[((e + p) % room * C + (e + p) / room) * stride + b / 8] = (uint8_t)(block >> (56 - 8 * p));
                }
        from += count * B * n;
    }
}

/* The one mask of a chain, of what its heads read, drawn image by image, [B][H], to rows of images. */
static void draw_last(const Net *net, const Step *step, Lane *s, const uint64_t *key, i64 word, i64 first, i64 last,
                      i64 every) {
    i64 H = net->read, B = net->batch, stride = s->P / 8 + 1, bits = step->drops == BITS;
    (void)first, (void)last, (void)every; /* there is one module */
    uint8_t *to = s->bits + before(net, net->depth - 1) * stride;
    float rate = (float)step->dropout;
    words(key, word, bits ? (H * B + 31) / 32 : H * B, s->drawn);
    memset(to, 0, H * stride);
    for (i64 b = 0; b < B; b++)
        for (i64 i = 0; i < H; i++) {
            i64 at = b * H + i;
            int kept = bits ? ((const uint8_t *)s->drawn)[at / 8] >> (7 - at % 8) & 1
                            : (float)(s->drawn[at] >> 8) * 0x1p-24f >= rate;
            to[i * stride + b / 8] |= (uint8_t)(kept << (7 - b % 8));
        }
}

/* The masks of one generator: modules `first` to `last` of those that drop, `every` in all, at all depths. */
static void draw(const Net *net, const Step *step, Lane *s, const uint64_t *key, i64 word, i64 first, i64 last,
                 i64 every) {
    i64 H = net->width, B = net->batch, stride = s->P / 8 + 1, size = (last - first) * H * B;
    if (step->drops == BITS) {
        i64 count = (size * net->depth + 31) / 32;
        words(key, word, count, s->drawn);
        s->drawn[count] = 0;
        for (i64 k = 0; k < net->depth; k++)
            spread((const uint8_t *)s->drawn, k * size, (last - first) * H, B,
                   s->bits + (k * every + first) * H * stride, stride);
        return;
    }
    words(key, word, size * net->depth, s->drawn);
    float rate = (float)step->dropout;
    for (i64 k = 0; k < net->depth; k++)
        for (i64 i = 0; i < (last - first) * H; i++) {
            uint8_t *row = s->bits + ((k * every + first) * H + i) * stride;
            const uint32_t *numbers = s->drawn + k * size + i * B;
            memset(row, 0, stride);
            for (i64 j = 0; j < B; j++)
                row[j / 8] |= (uint8_t)(((float)(numbers[j] >> 8) * 0x1p-24f >= rate) << (7 - j % 8));
        }
}

/* What drops outputs of a module at a depth. */
INLINE Drop drop_of(const Net *net, const Step *step, const Lane *s, i64 lane, i64 k, i64 module) {
    Drop found = {0, 0, s->P / 8 + 1, 1};
    if (step->drops == NO_DROPOUT || module < step->plain) return found;
    if (net->chain && (step->drops == GIVEN ? !step->masks[k] : k < net->depth - 1)) return found;
    i64 every = (step->mixes ? step->modules : 1) - step->plain, at = module - step->plain;
    i64 n = numbers_of(net, k);
    if (step->drops == GIVEN) {
        found.mask = step->masks[k] + lane * step->masks_lane[k] + at * n * (net->side ? 1 : net->batch);
        found.stride = every * n;
    } else if (!(step->off && step->off[lane])) {
        found.bits = s->bits + (before(net, k) * every + at * n) * found.stride;
        found.scale = 1.0f / (float)(1 - step->dropout);
    }
    return found;
}

/* A mask's factors of row i from column j on: ones behind the batch. */
INLINE vec factors(const float *mask, i64 B, i64 i, i64 j) {
    if (j + VL <= B) return load(mask + i * B + j);
    vec found = all(1);
    for (i64 b = j; b < B; b++) found[b - j] = mask[i * B + b];
    return found;
}

/* ReLU, if it `bends`, and dropout of what a module gives, in place. */
INLINE void fold(i64 rows, i64 P, i64 B, float *out, int bends, Drop drop) {
    for (i64 i = 0; i < rows; i++)
        for (i64 j = 0; j < P; j += VL) {
            vec v = load(out + i * P + j);
            if (bends) v = choose(~(v < 0), v);
            if (drop.bits) v = choose(set(drop.bits + i * drop.stride, j), v * drop.scale);
            if (drop.mask) v *= factors(drop.mask, B, i, j);
            store(out + i * P + j, v);
        }
}

/* The gradient before ReLU and dropout, from that behind them; where `share` [P] is there, also before mixing. */
INLINE void unfold(i64 rows, i64 P, i64 B, const float *slope, const float *out, const float *share, int bends,
                   Drop drop, float *to) {
    for (i64 i = 0; i < rows; i++)
        for (i64 j = 0; j < P; j += VL) {
            vec v = load(slope + i * P + j);
            if (share) v *= load(share + j);
            if (bends) v = choose(~(load(out + i * P + j) <= 0), v);
            else if (drop.bits) v = choose(set(drop.bits + i * drop.stride, j), v);
            v = drop.mask ? v * factors(drop.mask, B, i, j) : v * drop.scale;
            store(to + i * P + j, v);
        }
}

/* ---- heads and loss --------------------------------------------------------------------------------------------- */

/* The task of each image that counts, and the tasks that there are. */
static void look(const Net *net, const Step *step, Lane *s, i64 lane) {
    for (i64 t = 0; t < net->tasks; t++) s->rank[t] = -1;
    s->present = 0;
    for (i64 b = 0; b < s->P; b++) {
        i64 t = step->whole;
        if (t < 0) t = b < net->batch ? s->from[b]->task[lane * s->from[b]->task_lane + s->at[b]] : s->task[0];
        s->task[b] = t;
        if (s->rank[t] < 0 && b < net->batch && s->weight[b] != 0) s->rank[t] = s->present, s->here[s->present++] = t;
    }
}

/* From what heads read, [H][P] and [B][F], to the gradient at it, and those of the heads. */
static void answer(const Net *net, const Step *step, Lane *s, i64 lane, const float *h, float *const g[TENSORS]) {
    i64 H = net->read, P = s->P, B = net->batch, K = net->classes, F = s->F, one = net->units[HEAD] == 1;
    i64 heads = one ? 1 : s->present, R = heads * K;
    const float *weight = net->value[HEAD] + lane * net->apart * net->units[HEAD] * net->size[HEAD];
    const float *bias = net->value[HEAD_BIAS] + lane * net->apart * net->units[HEAD] * K;
    for (i64 r = 0; r < heads; r++) {
        i64 t = one ? 0 : s->here[r];
        memcpy(s->rows + r * K * H, weight + t * K * H, 4 * K * H);
        memcpy(s->rows_bias + r * K, bias + t * K, 4 * K);
    }
    product(R, P, H, s->rows, H, h, P, s->logits, P, s->rows_bias, 0);
    float *own = s->part;
    for (i64 b = 0; b < P; b++) {
        i64 t = s->task[b], rank = one ? 0 : s->rank[t];
        if (rank < 0) rank = 0; /* an image that does not count */
        for (i64 c = 0; c < K; c++) own[c * P + b] = s->logits[(rank * K + c) * P + b];
        if (step->known) {
            const uint8_t *known = step->known + lane * step->known_lane + t * step->known_task;
            for (i64 c = 0; c < K; c++)
                if (!known[c]) own[c * P + b] = -1e9f;
        }
    }
    if (!step->numbers) {
        for (i64 j = 0; j < P; j += VL) {
            vec high = load(own + j), all_ = {0};
            for (i64 c = 1; c < K; c++) {
                vec v = load(own + c * P + j);
                ivec more = v > high;
                high = (vec)((more & (ivec)v) | (~more & (ivec)high));
            }
            for (i64 c = 0; c < K; c++) {
                vec v = power(load(own + c * P + j) - high);
                store(own + c * P + j, v);
                all_ += v;
            }
            vec share = load(s->weight + j) / all_;
            for (i64 c = 0; c < K; c++) store(own + c * P + j, load(own + c * P + j) * share);
        }
        for (i64 b = 0; b < B; b++) {
            const i64 *y = (const i64 *)s->from[b]->y + lane * s->from[b]->y_lane;
            own[y[s->at[b]] * P + b] -= s->weight[b];
        }
    } else {
        float two = (float)(2.0 / (double)K);
        for (i64 b = 0; b < P; b++) {
            const float *y = b < B ? (const float *)s->from[b]->y + lane * s->from[b]->y_lane + s->at[b] * K : 0;
            for (i64 c = 0; c < K; c++)
                own[c * P + b] = b < B ? (own[c * P + b] - y[c]) * (s->weight[b] * two) : 0;
        }
    }
    if (step->known)
        for (i64 b = 0; b < P; b++)
            for (i64 c = 0; c < K; c++)
                if (!step->known[lane * step->known_lane + s->task[b] * step->known_task + c]) own[c * P + b] = 0;
    float *pull = own;
    if (heads > 1) {
        pull = s->pull;
        memset(pull, 0, 4 * R * P);
        for (i64 b = 0; b < B; b++)
            if (s->weight[b] != 0)
                for (i64 c = 0; c < K; c++) pull[(s->rank[s->task[b]] * K + c) * P + b] = own[c * P + b];
    }
    i64 first = step->first[HEAD], last = step->last[HEAD];
    if (first < last) {
        memset(s->touched[HEAD], 0, last - first);
        memset(s->touched[HEAD_BIAS], 0, last - first);
        product(R, F, B, pull, P, s->turned, F, s->wide, F, 0, 0);
        for (i64 r = 0; r < heads; r++) {
            i64 t = (one ? 0 : s->here[r]) - first;
            if (t < 0 || t >= last - first) continue;
            s->touched[HEAD][t] = s->touched[HEAD_BIAS][t] = 1;
            for (i64 c = 0; c < K; c++) {
                memcpy(g[HEAD] + (t * K + c) * H, s->wide + (r * K + c) * F, 4 * H);
                vec total_ = {0};
                for (i64 j = 0; j < P; j += VL) total_ += load(pull + (r * K + c) * P + j);
                g[HEAD_BIAS][t * K + c] = sum(total_);
            }
        }
    }
    turned_product(H, P, R, s->rows, H, pull, P, s->slope, P, 0, 0);
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */

/* Adds the gradients of unit `at` of weight `t`, and of the bias that comes behind it: slope[O][P] of what comes before
   its ReLU, and what it read, [B][I] in whole vectors. */
static void learn(const Net *net, Lane *s, int t, i64 at, i64 O, i64 I, const float *slope, const float *read,
                  float *const g[TENSORS]) {
    i64 P = s->P, F = filled(I);
    int more = s->touched[t][at];
    s->touched[t][at] = s->touched[t + 1][at] = 1;
    float *to = g[t] + at * O * I, *bias = g[t + 1] + at * O;
    if (F == I)
        product(O, F, net->batch, slope, P, read, F, to, I, 0, more);
    else {
        product(O, F, net->batch, slope, P, read, F, s->wide, F, 0, 0);
        for (i64 i = 0; i < O; i++)
            for (i64 j = 0; j < I; j++) to[i * I + j] = (more ? to[i * I + j] : 0) + s->wide[i * F + j];
    }
    for (i64 i = 0; i < O; i++) {
        vec total = {0};
        for (i64 j = 0; j < P; j += VL) total += load(slope + i * P + j);
        bias[i] = (more ? bias[i] : 0) + sum(total);
    }
}

/* out = a b factor, number by number. */
INLINE void multiply(i64 count, const float *a, const float *b, float factor, float *out) {
    for (i64 i = 0; i < count; i++) out[i] = a[i] * b[i] * factor;
}

/* The sums over images of squared gradients of modules that are in several depths. A module's gradient for one image is
   the sum over depths k of d_k h_k^T, with d_k the gradient before the ReLU and h_k what it read; the sum over images of
   its square is the sum over k and l of (d_k d_l) (h_k h_l)^T. */
static void square(const Net *net, const Step *step, Lane *s, float *const g[TENSORS]) {
    i64 H = net->width, D = net->depth, P = s->P, B = net->batch, F = s->F, M = step->modules;
    i64 first = step->first[WEIGHT], count = step->last[WEIGHT] - first;
    for (i64 k = 0; k < D; k++)
        for (i64 l = 0; l <= k; l++) {
            const float *one = k ? s->hidden + (k - 1) * H * P : s->x, *other = l ? s->hidden + (l - 1) * H * P : s->x;
            multiply(H * P, one, other, 1, s->next);
            turn(H, B, s->next, P, s->turned, F);
            for (i64 c = 0; c < count; c++) {
                if (!s->runs[k * M + first + c] || !s->runs[l * M + first + c]) continue;
                multiply(H * P, s->gates + (k * count + c) * H * P, s->gates + (l * count + c) * H * P, k == l ? 1 : 2,
                         s->gate);
                learn(net, s, WEIGHT, c, H, H, s->gate, s->turned, g);
            }
        }
}

INLINE int trains(const Step *step, i64 module) { return step->first[WEIGHT] <= module && module < step->last[WEIGHT]; }

/* One module, or layer of a chain, after the other. */
static void chain(const Net *net, const Step *step, Lane *s, i64 lane, float *const g[TENSORS], int squares) {
    i64 D = net->depth, P = s->P, B = net->batch, own = net->chain;
    const i64 *choice = step->choice ? step->choice + lane * step->choice_lane + step->whole * D : 0;
#define TENSOR(k) (own ? LAYERS + 2 * (int)(k) : WEIGHT)
#define UNIT(k) (own ? 0 : choice ? choice[k] : (k))
#define LIES(t, k) (net->value[t] + (lane * net->apart * net->units[t] + UNIT(k)) * net->size[t])
#define LEARNS(k) (step->first[TENSOR(k)] <= UNIT(k) && UNIT(k) < step->last[TENSOR(k)])
    const float *h = s->x;
    for (i64 k = 0; k < D; k++) {
        i64 O = numbers_of(net, k), I = into(net, k);
        float *out = s->hidden + before(net, k) * P;
        product(O, P, I, LIES(TENSOR(k), k), I, h, P, out, P, LIES(TENSOR(k) + 1, k), 0);
        fold(O, P, B, out, !own || net->bends[k], drop_of(net, step, s, lane, k, 0));
        h = out;
    }
    turn(net->read, B, h, P, s->turned, s->F);
    answer(net, step, s, lane, h, g);
    i64 low = D; /* the first depth that learns */
    for (i64 k = D - 1; k >= 0; k--)
        if (LEARNS(k)) low = k;
    float *slope = s->slope, *next = s->next;
    for (i64 k = D - 1; k >= low; k--) {
        i64 O = numbers_of(net, k), I = into(net, k), F = filled(I);
        unfold(O, P, B, slope, s->hidden + before(net, k) * P, 0, !own || net->bends[k],
               drop_of(net, step, s, lane, k, 0), slope);
        if (LEARNS(k)) {
            i64 at = UNIT(k) - step->first[TENSOR(k)];
            const float *read = s->xT;
            if (k) turn(I, B, s->hidden + before(net, k - 1) * P, P, s->turned, F), read = s->turned;
            if (squares) {
                multiply(O * P, slope, slope, 1, s->gate);
                multiply(B * F, read, read, 1, s->turned);
                learn(net, s, TENSOR(k), at, O, I, s->gate, s->turned, g);
            } else
                learn(net, s, TENSOR(k), at, O, I, slope, read, g);
        }
        if (k > low) {
            turned_product(I, P, O, LIES(TENSOR(k), k), I, slope, P, next, P, 0, 0);
            float *swap = slope;
            slope = next, next = swap;
        }
    }
}

/* How much of each module each task that is present takes, [tasks][counted][D], and each image, [D][modules][P]. */
static void shares(const Net *net, const Step *step, Lane *s, i64 lane) {
    i64 D = net->depth, P = s->P, C = step->counted, M = step->modules;
    const i64 *place = step->place + lane * step->place_lane;
    const uint8_t *takes = step->takes + lane * step->takes_lane, *shows = step->shows + lane * step->shows_lane;
    const float *structure = net->value[STRUCTURE] + lane * net->apart * net->units[STRUCTURE] * net->size[STRUCTURE];
    memset(s->runs, 0, D * M);
    for (i64 r = 0; r < s->present; r++) {
        i64 t = s->here[r], youngest = net->basis + t - net->initial;
        float *soft = s->softs + r * C * D;
        for (i64 k = 0; k < D; k++) {
            if (t < net->initial) {
                for (i64 c = 0; c < C; c++)
                    soft[c * D + k] = place[c] == step->choice[lane * step->choice_lane + t * D + k];
                continue;
            }
            const float *logits = structure + t * net->size[STRUCTURE];
            float high = -INFINITY, total = 0;
            for (i64 c = 0; c < C; c++)
                if (takes[c] && place[c] <= youngest && logits[c * D + k] > high) high = logits[c * D + k];
            for (i64 c = 0; c < C; c++) {
                int there = takes[c] && place[c] <= youngest;
                soft[c * D + k] = there ? expf(logits[c * D + k] - high) : 0;
                total += soft[c * D + k];
            }
            for (i64 c = 0; c < C; c++) soft[c * D + k] /= total;
        }
        for (i64 c = 0; c < M; c++)
            for (i64 k = 0; k < D; k++)
                if (soft[c * D + k] != 0 && (t < net->initial || shows[c])) s->runs[k * M + c] = 1;
    }
    for (i64 k = 0; k < D; k++)
        for (i64 c = 0; c < M; c++) {
            if (!s->runs[k * M + c]) continue;
            float *share = s->share + (k * M + c) * P;
            for (i64 b = 0; b < P; b++) {
                i64 t = s->task[b], rank = s->rank[t];
                share[b] = rank < 0 || (t >= net->initial && !shows[c]) ? 0 : s->softs[(rank * C + c) * D + k];
            }
        }
}

/* The gradients of the structures from what each module's share gains at a depth, `taken` [tasks][counted][D]. */
static void restructure(const Net *net, const Step *step, Lane *s, i64 lane, float *g) {
    i64 D = net->depth, C = step->counted, first = step->first[STRUCTURE], size = step->across * D;
    const uint8_t *shows = step->shows + lane * step->shows_lane;
    memset(s->touched[STRUCTURE], 0, step->last[STRUCTURE] - first);
    for (i64 r = 0; r < s->present; r++) {
        i64 t = s->here[r];
        if (t < net->initial || t < first || t >= step->last[STRUCTURE]) continue;
        const float *soft = s->softs + r * C * D, *taken = s->taken + r * C * D;
        s->touched[STRUCTURE][t - first] = 1;
        for (i64 k = 0; k < D; k++) {
            float mean = 0;
            for (i64 c = 0; c < C; c++)
                if (shows[c]) mean += taken[c * D + k] * soft[c * D + k];
            for (i64 c = 0; c < step->across; c++)
                g[(t - first) * size + c * D + k] = soft[c * D + k] * ((shows[c] ? taken[c * D + k] : 0) - mean);
        }
    }
}

/* Every depth mixes modules. */
static void mix(const Net *net, const Step *step, Lane *s, i64 lane, float *const g[TENSORS], int squares) {
    i64 H = net->width, D = net->depth, P = s->P, B = net->batch, F = s->F, M = step->modules, C = step->counted;
    const float *weight = net->value[WEIGHT] + lane * net->apart * net->units[WEIGHT] * H * H;
    const float *bias = net->value[BIAS] + lane * net->apart * net->units[BIAS] * H;
    shares(net, step, s, lane);
    const float *h = s->x;
    for (i64 k = 0; k < D; k++) {
        float *to = s->hidden + k * H * P;
        memset(to, 0, 4 * H * P);
        for (i64 c = 0; c < M; c++) {
            if (!s->runs[k * M + c]) continue;
            float *out = s->outs + (k * M + c) * H * P;
            const float *share = s->share + (k * M + c) * P;
            product(H, P, H, weight + c * H * H, H, h, P, out, P, bias + c * H, 0);
            fold(H, P, B, out, 1, drop_of(net, step, s, lane, k, c));
            for (i64 i = 0; i < H; i++)
                for (i64 j = 0; j < P; j += VL)
                    store(to + i * P + j, load(to + i * P + j) + load(out + i * P + j) * load(share + j));
        }
        h = to;
    }
    turn(H, B, h, P, s->turned, F);
    answer(net, step, s, lane, h, g);
    i64 learns = step->first[WEIGHT] < step->last[WEIGHT], structured = step->first[STRUCTURE] < step->last[STRUCTURE];
    if (structured) memset(s->taken, 0, 4 * s->present * C * D);
    float *slope = s->slope, *next = s->next;
    for (i64 k = D - 1; k >= 0 && (learns || structured); k--) {
        int turned = 0;
        if (k) memset(next, 0, 4 * H * P);
        for (i64 c = 0; c < M; c++) {
            if (!s->runs[k * M + c]) continue;
            const float *out = s->outs + (k * M + c) * H * P, *share = s->share + (k * M + c) * P;
            if (structured) {
                float *gain = s->pulls;
                for (i64 j = 0; j < P; j += VL) {
                    vec total = {0};
                    for (i64 i = 0; i < H; i++) total += load(slope + i * P + j) * load(out + i * P + j);
                    store(gain + j, total);
                }
                for (i64 b = 0; b < B; b++)
                    if (s->weight[b] != 0) s->taken[(s->rank[s->task[b]] * C + c) * D + k] += gain[b];
            }
            if (!k && !trains(step, c)) continue;
            unfold(H, P, B, slope, out, share, 1, drop_of(net, step, s, lane, k, c), s->gate);
            if (trains(step, c) && squares) {
                i64 at = k * (step->last[WEIGHT] - step->first[WEIGHT]) + c - step->first[WEIGHT];
                memcpy(s->gates + at * H * P, s->gate, 4 * H * P);
            } else if (trains(step, c)) {
                const float *read = s->xT;
                if (k) {
                    if (!turned) turn(H, B, s->hidden + (k - 1) * H * P, P, s->turned, F);
                    turned = 1;
                    read = s->turned;
                }
                learn(net, s, WEIGHT, c - step->first[WEIGHT], H, H, s->gate, read, g);
            }
            if (k) turned_product(H, P, H, weight + c * H * H, H, s->gate, P, next, P, 0, 1);
        }
        float *swap = slope;
        slope = next, next = swap;
    }
    if (structured) restructure(net, step, s, lane, g[STRUCTURE]);
    if (squares) square(net, step, s, g);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

/* The kernels of a module as each way reads them, put in order once in a step. */
static void pack(const Net *net, Lane *s, i64 c, const float *weight) {
    Shape first = shape_of(net, 0), later = {0, net->width, net->width};
    i64 C = net->width;
    if (s->packed[c]) return;
    s->packed[c] = 1;
    by_tap(&first, C, weight, s->first_taps + c * TAPS * C * net->channels);
    if (net->depth == 1) return;
    by_tap(&later, C, weight, s->taps + c * TAPS * C * C);
    by_row(&later, C, weight, s->rows_of + c * C * SPAN * span(C));
}

/* Adds what has been summed of modules that train to their gradients or, for squares, its squares; and begins anew. */
static void settle(const Net *net, const Step *step, Lane *s, float *const g[TENSORS], int squares) {
    Shape first = shape_of(net, 0), later = {0, net->width, net->width};
    i64 C = net->width, size = C * C * TAPS;
    for (i64 at = 0; at < step->last[WEIGHT] - step->first[WEIGHT]; at++) {
        if (!s->touched[WEIGHT][at]) continue;
        float *sums = s->sums + at * sums_of(net), *early = sums + C * SPAN * span(C);
        float *bias = early + C * SPAN * span(net->channels);
        float *to = squares ? s->settled : g[WEIGHT] + at * size;
        if (squares) memset(to, 0, 4 * size);
        from_rows(&later, C, sums, to);
        from_rows(&first, C, early, to);
        if (squares)
            for (i64 i = 0; i < size; i++) g[WEIGHT][at * size + i] += to[i] * to[i];
        for (i64 o = 0; o < C; o++) g[BIAS][at * C + o] += squares ? bias[o] * bias[o] : bias[o];
        memset(sums, 0, 4 * sums_of(net));
    }
}

/* Layers of convolutions, one module or a mixture of some at each depth. */
static void convolve(const Net *net, const Step *step, Lane *s, i64 lane, float *const g[TENSORS], int squares) {
    i64 C = net->width, D = net->depth, P = s->P, B = net->batch, F = s->F, size = net->size[WEIGHT];
    i64 mixes = step->mixes, M = mixes ? step->modules : 1, learns = step->first[WEIGHT] < step->last[WEIGHT];
    const float *weight = net->value[WEIGHT] + lane * net->apart * net->units[WEIGHT] * size;
    const float *bias = net->value[BIAS] + lane * net->apart * net->units[BIAS] * C;
    const i64 *choice = step->choice && !mixes ? step->choice + lane * step->choice_lane + step->whole * D : 0;
    i64 structured = mixes && step->first[STRUCTURE] < step->last[STRUCTURE], low = mixes && (learns || structured) ? 0 : D;
    i64 seen = framed(net->side, net->channels), *own = s->task;
#define MODULE(k, m) (mixes ? (m) : choice ? choice[k] : (k))
#define RUNS(k, m) (!mixes || s->runs[(k) * M + (m)])
#define FRAMES(k, m) (s->frames + (frames_before(net, k) * s->modules + (m) * frame_of(net, k)) * B)
    memset(s->packed, 0, net->units[WEIGHT]);
    if (mixes) shares(net, step, s, lane);
    const float *h = s->x;
    for (i64 k = 0; k < D; k++) {
        Shape shape = shape_of(net, k);
        float *to = s->hidden + before(net, k) * P;
        int more = 0;
        for (i64 m = 0; m < M; m++) {
            i64 c = MODULE(k, m);
            if (!RUNS(k, m)) continue;
            pack(net, s, c, weight + c * size);
            layer(&shape, P, B, k ? s->taps + c * TAPS * C * C : s->first_taps + c * TAPS * C * net->channels,
                  bias + c * C, h, drop_of(net, step, s, lane, k, m), mixes ? s->share + (k * M + m) * P : 0, more, s->z,
                  to, FRAMES(k, m), frame_of(net, k));
            more = 1;
            if (!trains(step, c)) continue;
            if (!mixes && k < low) low = k;
            i64 at = c - step->first[WEIGHT];
            if (!s->touched[WEIGHT][at]) {
                s->touched[WEIGHT][at] = s->touched[BIAS][at] = 1;
                memset(g[WEIGHT] + at * size, 0, 4 * size);
                memset(g[BIAS] + at * C, 0, 4 * C);
                memset(s->sums + at * sums_of(net), 0, 4 * sums_of(net));
            }
        }
        if (!more) memset(to, 0, 4 * numbers_of(net, k) * P);
        if (mixes) frame(side_of(net, k + 1), C, P, B, to, s->reads + frames_before(net, k) * B, frame_of(net, k));
        h = to;
    }
    i64 side = side_of(net, D), room = side * side;
    for (i64 w = 0; w < room; w++)
        for (i64 o = 0; o < C; o++) memcpy(s->top + (o * room + w) * P, h + (w * C + o) * P, 4 * P);
    turn(net->read, B, s->top, P, s->turned, F);
    answer(net, step, s, lane, s->top, g);
    turn(net->read, B, s->slope, P, s->turned, F);
    if (structured) memset(s->taken, 0, 4 * s->present * step->counted * D);
    for (i64 b = 0; b < B && low < D; b++) {
        if (s->weight[b] == 0) continue;
        float *slope = s->one, *next = s->other;
        for (i64 w = 0; w < room; w++)
            for (i64 o = 0; o < C; o++)
                slope[place(side, C, w / side, w % side) + o] = s->turned[b * F + o * room + w];
        for (i64 k = D - 1; k >= low; k--) {
            Shape shape = shape_of(net, k);
            i64 apart = frame_of(net, k), last = k == low;
            const float *read = k ? (mixes ? s->reads + frames_before(net, k - 1) * B : FRAMES(k - 1, 0))
                                        + b * frame_of(net, k - 1)
                                  : s->seen + b * seen;
            if (!last) memset(next, 0, 4 * frame_of(net, k - 1));
            for (i64 m = 0; m < M; m++) {
                i64 c = MODULE(k, m), at = c - step->first[WEIGHT];
                if (!RUNS(k, m)) continue;
                const float *out = FRAMES(k, m) + b * apart;
                if (structured)
                    s->taken[(s->rank[own[b]] * step->counted + m) * D + k] += gained(&shape, out, slope);
                if (last && !trains(step, c)) continue;
                Drop drop = drop_of(net, step, s, lane, k, m);
                pulled(&shape, out, slope, mixes ? s->share[(k * M + m) * P + b] : 1, drop.scale,
                       drop.mask ? drop.mask + b * drop.stride : 0, s->pulls_of, s->count);
                if (trains(step, c)) {
                    float *sums = s->sums + at * sums_of(net), *early = sums + C * SPAN * span(C);
                    learn_kernels(&shape, s->pulls_of, s->count, read, k ? sums : early,
                                  early + C * SPAN * span(net->channels));
                }
                if (!last) give_back(&shape, s->pulls_of, s->count, s->rows_of + c * C * SPAN * span(C), next);
            }
            float *swap = slope;
            slope = next, next = swap;
        }
        if (squares) settle(net, step, s, g, 1);
    }
    if (!squares && learns) settle(net, step, s, g, 0);
    if (structured) restructure(net, step, s, lane, g[STRUCTURE]);
}

/* ---- Adam ------------------------------------------------------------------------------------------------------- */

typedef struct {
    i64 count;
    float root, size;
} Pace;

/* One Adam step (Kingma & Ba 2015) of numbers that lie together. */
APART void move(i64 count, float *restrict value, float *restrict mean, float *restrict var,
                const float *restrict gradient, float blend, float decay, float fresh, float root, float size,
                float epsilon) {
    for (i64 i = 0; i < count; i++) {
        float g = gradient[i], m = mean[i] + (g - mean[i]) * blend, v = var[i] * decay + g * g * fresh;
        mean[i] = m;
        var[i] = v;
        value[i] -= size * m / (sqrtf(v) * root + epsilon);
    }
}

/* The step of every unit that trains and is active. Gradients lie as the part does: of a structure that is cut, less. */
static void descend(const Net *net, const Step *step, Lane *s, i64 lane, float *const g[TENSORS], int found) {
    Pace pace = {-1, 0, 0};
    for (int t = 0; t < TENSORS; t++) {
        i64 units = net->units[t], size = net->size[t], cut = t == STRUCTURE ? step->across * net->depth : size;
        for (i64 u = step->first[t]; u < step->last[t]; u++) {
            i64 at = u - step->first[t];
            if (step->active[t] && !step->active[t][lane * step->active_lane[t] + at]) continue;
            if (found && step->present && (t == HEAD || t == HEAD_BIAS) && !s->touched[t][at]) continue;
            if (found && !s->touched[t][at]) memset(g[t] + at * cut, 0, 4 * cut);
            i64 row = lane * net->apart * units + u, from = row * size, *steps = net->steps[t] + row;
            if (*steps + 1 != pace.count) {
                pace.count = *steps + 1;
                pace.root = (float)(1 / sqrt(1 - pow(net->beta2, (double)pace.count)));
                pace.size = (float)(net->rate / (1 - pow(net->beta1, (double)pace.count)));
            }
            move(cut, net->value[t] + from, net->mean[t] + from, net->var[t] + from, g[t] + at * cut,
                 (float)(1 - net->beta1), (float)net->beta2, (float)(1 - net->beta2), pace.root, pace.size,
                 (float)net->epsilon);
            ++*steps;
        }
    }
}

/* ---- means of models -------------------------------------------------------------------------------------------- */

#define SUMMED 1024 /* numbers that are summed at once */

/* The mean of each of some sets [count][most] of rows of a size, of the first `many` in it, one row after the other and
   in double precision. */
void shoal_means(const float *const *sets, const i64 *many, i64 size, i64 most, i64 count, float *means) {
    double sum[SUMMED];
    for (i64 from = 0; from < size; from += SUMMED) {
        i64 n = size - from < SUMMED ? size - from : SUMMED;
        for (i64 at = 0; at < count; at++) {
            const float *const *set = sets + at * most, *first = set[0] + from;
            for (i64 k = 0; k < n; k++) sum[k] = first[k];
            for (i64 i = 1; i < many[at]; i++) {
                const float *row = set[i] + from;
                for (i64 k = 0; k < n; k++) sum[k] += row[k];
            }
            double divisor = (double)many[at];
            for (i64 k = 0; k < n; k++) means[at * size + from + k] = (float)(sum[k] / divisor);
        }
    }
}

/* ---- a step of a lane ------------------------------------------------------------------------------------------- */

/* Does an image of the batch, or what it says of itself, lie outside of what there is? */
static int strays(const Net *net, const Step *step, i64 lane) {
    i64 D = net->depth, end = 0;
    const i64 *index = step->index ? step->index + lane * step->index_lane : 0;
    for (int p = 0; p < PARTS; p++) end = most(end, step->images[p].last);
    if (step->whole >= net->tasks) return 1;
    for (i64 b = 0; b < net->batch; b++) {
        i64 at = index ? index[b] : b;
        if (at < 0 || at >= end) return 1;
        const Images *part = step->images;
        while (at >= part->last) part++;
        if (part != step->images) at -= part[-1].last;
        if (!step->numbers) {
            i64 y = ((const i64 *)part->y)[lane * part->y_lane + at];
            if (y < 0 || y >= net->classes) return 1;
        }
        if (step->whole < 0) {
            i64 task = part->task[lane * part->task_lane + at];
            if (task < 0 || task >= net->tasks) return 1;
        }
    }
    if (step->choice && !step->mixes)
        for (i64 k = 0; k < D; k++) {
            i64 c = step->choice[lane * step->choice_lane + step->whole * D + k];
            if (c < 0 || c >= net->units[WEIGHT]) return 1;
        }
    return 0;
}

/* A row that a chain reads, of bytes or floats, as parts of its peak. */
static void scaled(const Net *net, const char *row, i64 count, float *to) {
    float peak = net->scaling[0];
    if (net->bytes)
        for (i64 i = 0; i < count; i++) to[i] = (float)((const uint8_t *)row)[i] / peak;
    else
        for (i64 i = 0; i < count; i++) to[i] = ((const float *)row)[i] / peak;
}

/* The images of the batch, both ways round, and how much each counts; 0, if none does. */
static int enter(const Net *net, const Step *step, Lane *s, i64 lane, int mode) {
    i64 H = net->side ? net->channels * net->side * net->side : into(net, 0), B = net->batch, P = s->P, F = filled(H);
    const float *weight = step->weight + lane * step->weight_lane;
    const i64 *index = step->index ? step->index + lane * step->index_lane : 0;
    float total = 0;
    for (i64 b = 0; b < B; b++) total += weight[b];
    if (total == 0) return 0;
    if (total < 1 || mode & SQUARES) total = 1; /* squares are of what each image loses by itself */
    for (i64 b = 0; b < P; b++) s->weight[b] = b < B ? weight[b] / total : 0;
    for (i64 b = 0; b < B; b++) {
        i64 number = index ? index[b] : b;
        const Images *part = step->images;
        while (number >= part->last) part++;
        s->from[b] = part, s->at[b] = part == step->images ? number : number - part[-1].last;
        i64 row = part->rows ? part->rows[lane * part->rows_lane + s->at[b]] : s->at[b];
        const char *x = part->x;
        if (net->side)
            develop(net->side, net->channels, (int)net->bytes, net->scaling,
                    x + (lane * part->x_lane + row * H) * (net->bytes ? 1 : 4),
                    s->seen + b * framed(net->side, net->channels));
        else if (net->chain)
            scaled(net, x + (lane * part->x_lane + row * H) * (net->bytes ? 1 : 4), H, s->xT + b * F);
        else
            memcpy(s->xT + b * F, x + (lane * part->x_lane + row * H) * 4, 4 * H);
    }
    if (P > B)
        for (i64 i = 0; i < H; i++) memset(s->x + i * P + B, 0, 4 * (P - B));
    if (net->side)
        unframe(net->side, net->channels, P, B, s->seen, framed(net->side, net->channels), s->x);
    else
        turn(B, H, s->xT, F, s->x, P);
    return 1;
}

static void take(const Net *net, const Step *step, Lane *s, i64 lane, int mode) {
    float *g[TENSORS];
    for (int t = 0; t < TENSORS; t++) {
        i64 size = (step->last[t] - step->first[t]) * (t == STRUCTURE ? step->across * net->depth : net->size[t]);
        g[t] = step->gradient[t] ? step->gradient[t] + lane * size : s->gradient[t];
        if (step->first[t] < step->last[t]) memset(s->touched[t], 0, step->last[t] - step->first[t]);
    }
    if (mode & FORTH) {
        if (!enter(net, step, s, lane, mode)) {
            if (!(mode & MOVE))
                for (int t = 0; t < TENSORS; t++)
                    memset(g[t], 0, 4 * (step->last[t] - step->first[t]) *
                                        (t == STRUCTURE ? step->across * net->depth : net->size[t]));
            return;
        }
        look(net, step, s, lane);
        if ((step->drops == BITS || step->drops == UNIFORM) && !(step->off && step->off[lane])) {
            i64 every = (step->mixes ? step->modules : 1) - step->plain;
            void (*drawn)(const Net *, const Step *, Lane *, const uint64_t *, i64, i64, i64, i64) =
                net->chain ? draw_last : net->side ? draw_frames : draw;
            drawn(net, step, s, step->key + 2 * lane, step->word, 0, step->own, every);
            if (step->own < every)
                drawn(net, step, s, step->further + 2 * lane, step->further_word, step->own, every, every);
        }
        (net->side ? convolve : step->mixes ? mix : chain)(net, step, s, lane, g, mode & SQUARES);
    }
    if (mode & MOVE) {
        descend(net, step, s, lane, g, mode & FORTH);
        return;
    }
    for (int t = 0; t < TENSORS; t++) {
        i64 size = t == STRUCTURE ? step->across * net->depth : net->size[t];
        for (i64 at = 0; at < step->last[t] - step->first[t]; at++)
            if (!s->touched[t][at]) memset(g[t] + at * size, 0, 4 * size);
    }
}

typedef struct {
    const Net *net;
    const Step *steps;
    i64 count;
    int mode;
    atomic_llong next;    /* the first lane that nobody has taken */
    atomic_int starved;   /* has somebody had no memory? */
    atomic_int stray;     /* has somebody met a number that lies outside? */
} Work;

/* Some steps of one lane after the other, until there is none left. */
static void *labour(void *given) {
    Work *work = given;
    const Net *net = work->net;
    Lane s;
    i64 bytes = laid(net, work->steps, work->count, work->mode, &s, 0);
    char *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!memory) {
        work->starved = 1;
        return 0;
    }
    laid(net, work->steps, work->count, work->mode, &s, memory);
    /* Columns behind the width are read as part of a vector, and never written. */
    if (net->side) memset(memory, 0, bytes); /* the frames around images stay as they are */
    if (!net->side) memset(s.xT, 0, 4 * net->batch * filled(into(net, 0))), memset(s.turned, 0, 4 * net->batch * s.F);
    for (i64 lane; (lane = atomic_fetch_add(&work->next, 1)) < net->lanes;)
        for (i64 i = 0; i < work->count; i++) {
            if (work->mode & FORTH && strays(net, work->steps + i, lane)) {
                work->stray = 1;
                break;
            }
            take(net, work->steps + i, &s, lane, work->mode);
        }
    free(memory);
    return 0;
}

/* Some steps of every lane, by so many threads. Gives 0, or 1 where there is no memory. */
int shoal_steps(const Net *net, const Step *steps, i64 count, int mode, i64 threads) {
    Work work = {net, steps, count, mode, 0, 0, 0};
    pthread_t others[MOST];
    i64 started = 0;
    if (threads > net->lanes) threads = net->lanes;
    while (started + 1 < threads && started < MOST && !pthread_create(others + started, 0, labour, &work)) started++;
    labour(&work);
    for (i64 i = 0; i < started; i++) pthread_join(others[i], 0);
    return work.starved ? 1 : work.stray ? 2 : 0;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

#define SEEN 64 /* images at once: what a depth reads and writes stays in the innermost cache */

typedef struct {
    const void *x;                  /* [N][...] */
    const i64 *rows;                /* [count] of x; none: the first `count` */
    i64 count, width, depth, modules, classes;
    i64 side, channels, bytes;      /* as in Net */
    const float *scaling;
    const float *weight, *bias;     /* [modules][H][H] or kernels, [modules][H] */
    const float *share;             /* [modules][D] how much of a module is in the sum at a depth; 0: it is not run */
    const float *head, *head_bias;  /* [K][H], [K]; none: what a head would read is wanted */
    float *out;                     /* [count][K], or [count][what a head would read] */
} Question;

/* A tile of c[M][N] = or += share relu(a[M][K] b[K][N] + bias). What is no number stays none. */
INLINE void run_tile(const int rows, const int wide, i64 inner, const float *a, const float *b, i64 ldb, float *c,
                     const float *bias, float share, int more) {
    vec held[MR][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < wide; j++) held[i][j] = all(bias[i]);
    for (i64 k = 0; k < inner; k++) {
        vec right[2];
        for (int j = 0; j < wide; j++) right[j] = load(b + k * ldb + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < wide; j++) held[i][j] += all(a[i * inner + k]) * right[j];
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < wide; j++) {
            vec v = choose(~(held[i][j] < 0), held[i][j]) * share;
            store(c + i * ldb + j * VL, more ? load(c + i * ldb + j * VL) + v : v);
        }
}

/* What one module makes of h[H][P], times its share, to or into `out`. */
APART void run_module(i64 H, i64 P, const float *weight, const float *bias, const float *h, float *out, float share,
                      int more) {
    for (i64 j = 0; j < P; j += 2 * VL) {
        i64 i = 0;
        for (; i + MR <= H; i += MR)
            run_tile(MR, 2, H, weight + i * H, h + j, P, out + i * P + j, bias + i, share, more);
        for (; i < H; i++) run_tile(1, 2, H, weight + i * H, h + j, P, out + i * P + j, bias + i, share, more);
    }
}

/* What there is for a question while it is answered. */
typedef struct {
    float *seen, *one, *other; /* images, and numbers before and behind a depth */
    float *logits;
    float *kernels, *z, *share;
} Answer;

INLINE i64 pixels(const Question *q) { return q->side * q->side * q->channels; }
/* The most numbers of an image before or behind a depth, and how many a head reads. */
INLINE i64 widest(const Question *q) {
    return q->side ? most(pixels(q), q->width * halved(q->side) * halved(q->side)) : q->width;
}
INLINE i64 reads(const Question *q) {
    return q->side ? q->width * (q->side >> q->depth) * (q->side >> q->depth) : q->width;
}

/* The depths of a net for so many columns of h; gives where what comes out of the last lies. */
static float *deepen(const Question *q, const Answer *s, i64 P) {
    i64 H = q->width;
    float *h = s->one, *next = s->other;
    for (i64 k = 0; k < q->depth; k++) {
        Shape shape = {q->side >> k, k ? H : q->channels, H};
        int more = 0;
        for (i64 c = 0; c < q->modules; c++) {
            float share = q->share[c * q->depth + k];
            if (share == 0) continue;
            if (q->side) {
                by_tap(&shape, H, q->weight + c * H * H * TAPS, s->kernels);
                for (i64 b = 0; b < P; b++) s->share[b] = share;
                layer(&shape, P, P, s->kernels, q->bias + c * H, h, (Drop){0, 0, 0, 1}, s->share, more, s->z, next, 0, 0);
            } else
                run_module(H, P, q->weight + c * H * H, q->bias + c * H, h, next, share, more);
            more = 1;
        }
        if (!more) memset(next, 0, 4 * (q->side ? H * halved(shape.side) * halved(shape.side) : H) * P);
        float *swap = h;
        h = next, next = swap;
    }
    if (!q->side) return h;
    i64 room = (q->side >> q->depth) * (q->side >> q->depth);
    for (i64 w = 0; w < room; w++)
        for (i64 o = 0; o < H; o++) memcpy(next + (o * room + w) * P, h + (w * H + o) * P, 4 * P);
    return next;
}

/* Answers to questions, one after the other. Gives 0, or 1 where there is no memory. An image's answer depends on no
   other image. */
int shoal_answers(const Question *questions, i64 count) {
    i64 P = SEEN, seen = 0, wide = 0, K = 0, kernel = 0, C = 0;
    for (i64 i = 0; i < count; i++) {
        const Question *q = questions + i;
        seen = most(seen, most(reads(q), q->side ? framed(q->side, q->channels) : q->width));
        wide = most(wide, widest(q)), K = most(K, q->classes);
        if (q->side) C = most(C, q->width), kernel = most(kernel, TAPS * q->width * q->width);
    }
    i64 every[] = {seen * P, wide * P, wide * P, K * P, filled(kernel), 5 * C * P, P}, total = 0;
    for (int i = 0; i < 7; i++) total += every[i];
    float *memory = aligned_alloc(64, (4 * total + 127) / 64 * 64), *parts[7], *at = memory;
    if (!memory) return 1;
    for (int i = 0; i < 7; i++) parts[i] = at, at += every[i];
    Answer s = {parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6]};
    for (const Question *q = questions; q < questions + count; q++)
        for (i64 from = 0; from < q->count; from += P) {
            i64 n = q->count - from < P ? q->count - from : P, H = reads(q), frame = framed(q->side, q->channels);
            /* Columns behind the last image are computed with it, and not read. */
            for (i64 b = 0; b < P; b++) {
                i64 number = from + (b < n ? b : n - 1), row = q->rows ? q->rows[number] : number;
                const char *x = q->x;
                if (q->side)
                    develop(q->side, q->channels, (int)q->bytes, q->scaling, x + row * pixels(q) * (q->bytes ? 1 : 4),
                            s.seen + b * frame);
                else
                    memcpy(s.seen + b * H, x + row * H * 4, 4 * H);
            }
            if (q->side)
                unframe(q->side, q->channels, P, P, s.seen, frame, s.one);
            else
                turn(P, H, s.seen, H, s.one, P);
            float *h = deepen(q, &s, P);
            if (!q->head) {
                turn(H, P, h, P, s.seen, H);
                memcpy(q->out + from * H, s.seen, 4 * n * H);
                continue;
            }
            product(q->classes, P, H, q->head, H, h, P, s.logits, P, q->head_bias, 0);
            for (i64 b = 0; b < n; b++)
                for (i64 c = 0; c < q->classes; c++) q->out[(from + b) * q->classes + c] = s.logits[c * P + b];
        }
    free(memory);
    return 0;
}

/* ---- nearest images --------------------------------------------------------------------------------------------- */

#define SIMILAR 256 /* images at once that queries are compared with */

typedef struct {
    const float *theirs;       /* [asked][H] features of queries */
    i64 asked;
    const i64 *query;          /* [asked] the number of each */
    const float *mine;         /* [held][H] features of one's own images */
    i64 held;
    const i64 *place, *task;   /* [held] the number of each, and its task */
} Search;

/* A row of features with length 1. */
INLINE void unit(i64 H, const float *in, float *out) {
    float square = 0;
    for (i64 k = 0; k < H; k++) square += in[k] * in[k];
    float length = sqrtf(square) < 1e-12f ? 1e-12f : sqrtf(square);
    for (i64 k = 0; k < H; k++) out[k] = in[k] / length;
}

/* For every query its `most` nearest images by the cosine of features, of tasks that are wanted[query][tasks]: into
   best[query][most], the nearest first, and found[query][most], of images that are as near the one that comes first.
   Where there are `places`, cosines are whole numbers of so many parts of one. What is there before counts too. A
   query's neighbours depend on no other query. Gives 0, or 1 where there is no memory. */
int shoal_nearest(const Search *searches, i64 count, i64 H, i64 tasks, const uint8_t *wanted, i64 most, i64 places,
                  float *best, i64 *found) {
    i64 N = SIMILAR;
    float *memory = aligned_alloc(64, (4 * (2 * H * N + MR * (H + N)) + 127) / 64 * 64);
    if (!memory) return 1;
    float *rows = memory, *columns = rows + H * N, *asked = columns + H * N, *similar = asked + MR * H;
    for (const Search *s = searches; s < searches + count; s++)
        for (i64 from = 0; from < s->held; from += N) {
            i64 n = s->held - from < N ? s->held - from : N;
            for (i64 j = 0; j < n; j++) unit(H, s->mine + (from + j) * H, rows + j * H);
            memset(rows + n * H, 0, 4 * (filled(n) - n) * H);
            turn(filled(n), H, rows, H, columns, N);
            for (i64 q = 0; q < s->asked; q += MR) {
                i64 m = s->asked - q < MR ? s->asked - q : MR;
                for (i64 i = 0; i < m; i++) unit(H, s->theirs + (q + i) * H, asked + i * H);
                product(m, filled(n), H, asked, H, columns, N, similar, N, 0, 0);
                for (i64 i = 0; i < m; i++) {
                    i64 query = s->query[q + i], *at = found + query * most;
                    float *near = best + query * most, last = near[most - 1];
                    const uint8_t *wants = wanted + query * tasks;
                    for (i64 j = 0; places && j < n; j++) similar[i * N + j] = rintf(similar[i * N + j] * places);
                    for (i64 j = 0; j < n; j++) {
                        float one = similar[i * N + j];
                        if (!(one > last) || !wants[s->task[from + j]]) continue;
                        i64 to = most - 1;
                        for (; to && one > near[to - 1]; to--) near[to] = near[to - 1], at[to] = at[to - 1];
                        near[to] = one, at[to] = s->place[from + j];
                        last = near[most - 1];
                    }
                }
            }
        }
    free(memory);
    return 0;
}

/* ---- what was built --------------------------------------------------------------------------------------------- */

#ifndef SHOAL_SOURCE
#define SHOAL_SOURCE ""
#endif

/* The digest of the source. */
const char *shoal_source(void) { return SHOAL_SOURCE; }

const char *shoal_compiler(void) {
#ifdef __clang__
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

/* Which of the sets of instructions in build.py this processor has, and its system allows: the number of the best. */
int shoal_level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi")
        || !__builtin_cpu_supports("bmi2"))
        return 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd")
                   && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? 2
               : 1;
#else
    return 0;
#endif
}

/* The bytes of a structure, by its place in layout.py; -1: there is none. */
i64 shoal_size(i64 which) {
    const i64 sizes[] = {sizeof(Net), sizeof(Images), sizeof(Step), sizeof(Question), sizeof(Search),
                         sizeof(Gru)};
    return which < 0 || which >= (i64)(sizeof sizes / sizeof *sizes) ? -1 : sizes[which];
}
