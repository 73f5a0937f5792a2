# Words in hashes, records of hashes and arrays, regular expressions; argument: rounds.
use strict;
use warnings;

my $rounds = shift;
my $seed   = 1;
sub rnd { $seed = ($seed * 1103515245 + 12345) % 2147483648; return ($seed >> 3) % $_[0] }

my ($pairs, $bytes, %words) = (0, 0);
for my $round (1 .. $rounds) {
    for (1 .. 12000) {
        my $word = join '', map { chr(97 + rnd(26)) } 1 .. 2 + rnd(3);
        push @{ $words{$word} }, $round;
    }
    my @rows = map { { word => $_, count => scalar @{ $words{$_} }, letters => [ split // ] } }
      (sort keys %words)[0 .. 2999];
    my $text = join "\n", map { "$_->{word}:$_->{count}:@{$_->{letters}}" } @rows;
    $pairs += () = $text =~ /(\w)\s\1/g;
    $text =~ s/(\w+):(\d+)/$2-$1/g;
    $bytes += length $text;
    delete @words{ grep { rnd(3) == 0 } sort keys %words } if $round % 8 == 0;
}
my $sum = 0;
$sum = ($sum * 31 + unpack('%32C*', $_) + @{ $words{$_} }) % 4294967296 for sort keys %words;
printf "%d words, %d pairs, %d bytes, sum %d\n", scalar(keys %words), $pairs, $bytes, $sum;
