import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/** Print every ConfigOption constant of Flink's classes: class, key, type, default and deprecated keys, tab-separated. */
public class FlinkOptions {
    public static void main(String[] jars) throws Exception {
        Class<?> option = Class.forName("org.apache.flink.configuration.ConfigOption");
        Field type = option.getDeclaredField("clazz");
        Field isList = option.getDeclaredField("isList");
        type.setAccessible(true);
        isList.setAccessible(true);
        for (String jar : jars) {
            try (JarFile file = new JarFile(jar)) {
                for (JarEntry entry : Collections.list(file.entries())) {
                    String path = entry.getName();
                    if (!path.endsWith(".class") || !path.startsWith("org/apache/flink/") || path.contains("/shaded/")) {
                        continue;
                    }
                    try (InputStream stream = file.getInputStream(entry)) {
                        String constants = new String(stream.readAllBytes(), StandardCharsets.ISO_8859_1);
                        if (!constants.contains("Lorg/apache/flink/configuration/ConfigOption;")) {
                            continue;
                        }
                    }
                    String name = path.substring(0, path.length() - ".class".length()).replace('/', '.');
                    try {
                        list(Class.forName(name, false, FlinkOptions.class.getClassLoader()), option, type, isList);
                    } catch (LinkageError error) {
                        // Classes of optional dependencies, such as Hadoop, only use options of other classes.
                        System.err.println(name + ": " + error);
                    }
                }
            }
        }
    }

    private static void list(Class<?> owner, Class<?> option, Field type, Field isList) throws Exception {
        for (Field field : owner.getDeclaredFields()) {
            if (!Modifier.isStatic(field.getModifiers()) || !option.isAssignableFrom(field.getType())) {
                continue;
            }
            field.setAccessible(true);
            Object found = field.get(null);
            if (found == null) {
                continue;
            }
            List<String> deprecated = new ArrayList<>();
            for (Object each : (Iterable<?>) call(found, "fallbackKeys")) {
                deprecated.add((String) call(each, "getKey"));
            }
            System.out.println(String.join("\t",
                    owner.getName(),
                    (String) call(found, "key"),
                    (isList.getBoolean(found) ? "list of " : "") + ((Class<?>) type.get(found)).getSimpleName(),
                    String.valueOf(call(found, "defaultValue")).replaceAll("\\s+", " "),
                    String.join(" ", deprecated)));
        }
    }

    private static Object call(Object target, String name) throws Exception {
        Method method = target.getClass().getMethod(name);
        method.setAccessible(true);
        return method.invoke(target);
    }
}
