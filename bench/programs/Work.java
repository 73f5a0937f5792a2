// Code compiled while it runs, zlib, direct buffers: what the virtual machine takes from
// malloc. The objects themselves are in its own heap. Argument: rounds.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

public class Work {
  static long text(Random random) {
    Map<String, List<Integer>> index = new TreeMap<>();
    for (int i = 0; i < 20000; i++)
      index.computeIfAbsent("k" + random.nextInt(5000), k -> new ArrayList<>()).add(i);
    String joined = index.entrySet().stream().filter(e -> e.getValue().size() > 2)
        .map(e -> e.getKey() + e.getValue()).collect(Collectors.joining("|"));
    return joined.replaceAll("([0-9]+), ", "<$1>").hashCode();
  }

  static long packed(Random random) throws Exception {
    CRC32 crc = new CRC32();
    for (int i = 0; i < 60; i++) {
      byte[] plain = new byte[1 + random.nextInt(30000)];
      for (int j = 0; j < plain.length; j++) plain[j] = (byte) (j * j >> i % 8);
      Deflater deflater = new Deflater(1);
      deflater.setInput(plain);
      deflater.finish();
      byte[] out = new byte[plain.length + 100];
      int length = deflater.deflate(out);
      deflater.end();
      Inflater inflater = new Inflater();
      inflater.setInput(out, 0, length);
      byte[] back = new byte[plain.length];
      inflater.inflate(back);
      inflater.end();
      crc.update(back);
    }
    return crc.getValue();
  }

  static long buffers(Random random) {
    long sum = 0;
    List<ByteBuffer> kept = new ArrayList<>();
    for (int i = 0; i < 300; i++) {
      ByteBuffer buffer = ByteBuffer.allocateDirect(16 + random.nextInt(20000));
      for (int at = 0; at + 8 <= buffer.capacity(); at += 64) buffer.putLong(at, i);
      sum += buffer.getLong(0);
      if (i % 8 == 0) kept.add(buffer);
    }
    return sum + kept.size();
  }

  public static void main(String[] args) throws Exception {
    Random random = new Random(1);
    long sum = 0;
    for (int round = Integer.parseInt(args[0]); round > 0; round--)
      sum = sum * 31 + text(random) + packed(random) + buffers(random);
    System.out.println(sum);
  }
}
